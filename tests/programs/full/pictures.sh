# ImageMagick: a picture is made, turned, blurred, made smaller, and told by its hash. Argument: scale.
set -e
convert -seed 7 -size $((1200 * $1))x1500 plasma:fractal -rotate 17 -blur 0x3 -resize 70% \( +clone -negate -flop \) -append -depth 8 rgb:out
sha256sum < out
convert -seed 9 -size 1200x1500 plasma:tomato-blue -liquid-rescale 60x100% -quality 90 out.jpg 2>/dev/null || convert -seed 9 -size 1200x1500 plasma:tomato-blue -resize 60x100% out.jpg
convert out.jpg -depth 8 rgb:out2
sha256sum < out2
