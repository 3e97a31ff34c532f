#!/usr/bin/env bash
# Types every line of README.md's blocks of commands, in their order, into one shell, and behind them the
# commands that its sentences name whole: in a copy of the sources, with a home folder of its own, and the
# programs on the PATH, as a release's are. The models are a bundled one. CMake and ninja are those of the
# machine; only the compiler is not: objects are empty, and what is linked comes from BUILD, so that a
# program that README's commands do not build is missing here as it would be for a newcomer.
#   tests/e2e/readme/run.sh BUILD       a folder with both programs
# Status: 0 all lines worked, 1 otherwise. What a machine lacks is skipped, and said.
set -euo pipefail
source=$(cd "$(dirname "$0")/../../.." && pwd)
built=$(cd "${1:?usage: tests/e2e/readme/run.sh BUILD}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
copy=$work/ktx shims=$work/shims programs=$work/bin
mkdir -p "$copy" "$shims" "$programs" "$work/home"
ln -s "$built/ktx-compile" "$built/ktx-run" "$programs/"

# The sources as they are now, without the tests but for the model.
cd "$source"
{ git ls-files -- . ':!tests'; git ls-files -- tests/models/qwen3moe; } | xargs ls -d 2> /dev/null |
  tar cf - -T - | tar xf - -C "$copy"

# What compiles and links.
cat > "$shims/ccache" <<'SHIM'
#!/usr/bin/env bash
# A compiler's or linker's command line behind it: the file behind -o appears, and that behind -MF.
set -euo pipefail
out= depends= before=
for word in "$@"; do
  case $before in -o) out=$word ;; -MF) depends=$word ;; esac
  before=$word
done
case $PWD/$out in *CMakeScratch* | *CMakeTmp*) exec "$@" ;; esac  # questions of CMake
[ -z "$depends" ] || echo "$out:" > "$depends"
case $out in
  *.o) : > "$out" ;;
  # A library that BUILD was made without is an empty one.
  *.so*) cp "$KTX_BUILT/$out" "$out" 2> /dev/null || c++ -shared -x c++ /dev/null -o "$out" ;;
  *) cp "$KTX_BUILT/$out" "$out" ;;
esac
SHIM
# No test installs packages: what is missing shows below.
printf '#!/bin/sh\nexec "$@"\n' > "$shims/sudo"
for manager in apt-get dnf; do printf '#!/bin/sh\nexit 100\n' > "$shims/$manager"; done
chmod +x "$shims"/*
export KTX_BUILT=$built HOME=$work/home KTX_SERVE_PORT=0
export CMAKE_CXX_LINKER_LAUNCHER=$shims/ccache CMAKE_C_LINKER_LAUNCHER=$shims/ccache
export PATH=$shims:$programs:/usr/sbin:/usr/bin:/sbin:/bin

# The files that README's lines name.
cd "$copy"
model=$copy/tests/models/qwen3moe
ln -s "$model/qwen3moe-q4_k_m.gguf" model.gguf
ln -s "$model/config.json" config.json
ln -s rules/moe-experts-on-cpu.yaml rules.yaml
echo "Once upon a time" > prompt.txt
echo '{"messages": [{"role": "user", "content": "Tell me a story."}]}' > case.json

no_build=
if ! tools/dev/setup > /dev/null 2>&1; then  # the lines behind it still have their programs
  no_build="packages of a build are missing (tools/dev/setup)"
  mkdir build
  ln -s "$built/ktx-compile" "$built/ktx-run" build/
fi

# A server answers, and ends with its line.
serve() {
  eval "$1" > "$work/out" 2> "$work/err" &
  local server=$! url= status=1
  while kill -0 $server 2> /dev/null; do
    url=$(sed -nE 's,.*(http://127\.0\.0\.1:[0-9]+).*,\1,p' "$work/err" | head -1)
    if [ -n "$url" ] && curl -fs "$url/health" > /dev/null; then
      status=0
      break
    fi
    sleep 0.1
  done
  pkill -P $server 2> /dev/null || true
  kill $server 2> /dev/null || true
  wait $server 2> /dev/null || true
  return $status
}

failed=0 lines=0
while IFS= read -r line <&3; do
  lines=$((lines + 1))
  why=
  case $line in
    tools/dev/check*) why="it runs this test" ;;
    *quickstart*) why=$no_build ;;
    *SHA256SUMS* | *ktx-*-linux* | *ktx_*_amd64.deb* | skopeo*) why="tools/dev/try-release tries a release's files" ;;
    *"serve models/"*) mkdir -p models && cp model.ktxplan models/ || true ;;
  esac
  case $line in *serve*) command -v curl > /dev/null || why="no curl" ;; esac
  if [ -n "$why" ]; then
    echo "skipped: $line: $why"
    continue
  fi
  status=0
  case $line in
    *"ktx-run serve"* | *" --serve") serve "$line" || status=$? ;;
    *) eval "$line" <<< "Tell me a story." > "$work/out" 2> "$work/err" || status=$? ;;
  esac
  if [ $status = 0 ]; then
    echo "ok: $line"
  else
    echo "FAILED ($status): $line"
    tail -n 15 "$work/out" "$work/err"
    failed=1
  fi
done 3< <(awk '/^```/ {inside = !inside; next} inside && NF' "$source/README.md"
          grep -ohE '`(tools/dev/quickstart|ktx-run doctor)[^`]*`' "$source/README.md" | tr -d '`')
[ $lines -ge 20 ] || { echo "FAILED: README.md has $lines lines of commands"; failed=1; }
exit $failed
