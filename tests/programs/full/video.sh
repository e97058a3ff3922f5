#!/bin/bash
# ffmpeg: a made-up film is encoded, decoded again and put through filters; the sums of all frames are printed. Argument: scale.
set -eu
run() { ffmpeg -hide_banner -loglevel error -nostdin -y -threads 2 "$@"; }
run -f lavfi -i "testsrc2=size=1280x720:rate=24:duration=$((2 * $1))" -f lavfi -i "sine=frequency=440:duration=$((2 * $1))" \
    -c:v mpeg4 -qscale:v 3 -c:a aac -bitexact film.mkv
run -i film.mkv -map 0:v -vf "reverse,scale=640:360,hue=s=0.5" -bitexact -f framemd5 - | sha256sum
run -i film.mkv -map 0:a -af "areverse,aecho=0.8:0.8:40:0.5" -bitexact -f framemd5 - | sha256sum
run -i film.mkv -map 0:v -c:v ffv1 -bitexact -f framemd5 - | sha256sum
