#!/bin/bash
# A page as Firefox draws it, with all of its own sandboxes: what is on it is reckoned from many objects.
set -euo pipefail
export HOME=$PWD/home
mkdir -p home profile
cat >picture.html <<'end'
<body><script>
const all = [];
for (let i = 0; i < 1500000; i++) all.push({ i, text: 'x' + i });
document.body.innerHTML = '<h1>' + all.reduce((sum, o) => sum + o.i, 0) + '</h1>'.repeat(20);
</script></body>
end
timeout 300 firefox-esr --headless --no-remote --profile "$PWD/profile" --window-size 800,600 --screenshot "$PWD/page.png" \
	"file://$PWD/picture.html" >/dev/null 2>&1
cksum <page.png
