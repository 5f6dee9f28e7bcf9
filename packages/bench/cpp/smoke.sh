#!/bin/sh
# Every mode once, on a file of a megabyte: smoke.sh PROGRAM FOLDER. The program compares the sums of all answers.
set -eu
program=$1 folder=$2
"$program" build "$folder" --size 1000000 --questions 5000
[ -e "$folder/index.cereal" ] && cereal="cereal:index.cereal" || cereal=
for row in none:index.oc read:index.oc map:index.oc warm:index.oc start:index.oc random:index.oc copy:index.oc s.mmap:index.stream s.load:index.stream fread:index.flat $cereal; do
  for threads in 1 4; do
    printf '{}\nload\nexit\n' |
      "$program" open --questions "$folder/questions" --threads $threads --mode "${row%%:*}" row "$folder/${row#*:}"
  done
done
printf '{}\nload\nexit\n' | "$program" fresh --count 3 --questions "$folder/questions" --mode map row "$folder/index.oc"
"$program" nested build "$folder/nested.oc" --count 10000
"$program" nested open "$folder/nested.oc"
rm -r "$folder"
