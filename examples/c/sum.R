# Sums an array of F64 of a file: Rscript sum.R FILE NAME, after
# cc -shared -fPIC $(R CMD config --cppflags) onecopy_r.c -o onecopy_r.so $(pkg-config --cflags --libs onecopy-c)
words <- commandArgs(TRUE)
dyn.load("onecopy_r.so")
values <- .Call("mapped_array", words[1], words[2])
changed <- values
changed[1] <- changed[1] + 1 # a copy: the file stays as it is
cat(words[2], ": ", 8 * length(values), " bytes, sum ", sum(values), ", changed ", sum(changed), "\n", sep = "")
