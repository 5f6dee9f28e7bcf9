#!/bin/sh
# Opens a file of a megabyte once in each mode: smoke.sh PROGRAM FOLDER. The program compares the sums of all answers.
set -eu
program=$1 folder=$2
"$program" build "$folder" --size 1000000 --questions 5000
for row in map:index.oc warm:index.oc copy:index.oc s.mmap:index.stream s.load:index.stream fread:index.flat; do
  printf '{}\ngo\nexit\n' |
    "$program" open --questions "$folder/questions" --mode "${row%%:*}" row "$folder/${row#*:}"
done
rm -r "$folder"
