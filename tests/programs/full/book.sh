# pdflatex sets a book, Ghostscript draws its pages. Argument: scale.
set -e
{
    echo '\documentclass{book}\usepackage{amsmath,graphicx,hyperref}\begin{document}\tableofcontents'
    awk -v n=$((60 * $1)) 'BEGIN { for (i = 1; i <= n; i++) { print "\\chapter{Part " i "}\\label{c" i "}"; for (j = 0; j < 20; j++) print "Words and words about \\ref{c" (i * 7 % n + 1) "}, and $\\sum_{k=0}^{" j "} x_k^{" i "}$ beside more words that fill the line.\n" } }'
    echo '\end{document}'
} > book.tex
pdflatex -interaction=batchmode book.tex >/dev/null || true
pdflatex -interaction=batchmode book.tex >/dev/null || true
gs -q -dBATCH -dNOPAUSE -sDEVICE=ppmraw -r400 -dLastPage=12 -dMaxBitmap=400000000 -dNumRenderingThreads=2 -sOutputFile=- book.pdf | sha256sum
