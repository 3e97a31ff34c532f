#!/usr/bin/env bash
# Types every line of README.md's blocks of commands, in their order, into one shell, and behind them the
# commands that its sentences name whole: in a copy of the sources, with a home folder of its own, and a
# folder in the place of the root that packages are installed in. The models are a bundled one. CMake, ninja
# and cpack are those of the machine; only the compiler is not: objects are empty, and what is linked comes
# from BUILD, so that a program or library that README's commands do not build is missing here as it would
# be for a newcomer.
#   tests/e2e/readme/run.sh BUILD       a folder with both programs, and libktx.so for the package
# Status: 0 all lines worked, 1 otherwise. What a machine lacks is skipped, and said.
set -euo pipefail
source=$(cd "$(dirname "$0")/../../.." && pwd)
built=$(cd "${1:?usage: tests/e2e/readme/run.sh BUILD}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
copy=$work/ktx shims=$work/shims root=$work/root
mkdir -p "$copy" "$shims" "$root" "$work/home"

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
  # A library that BUILD was made without is an empty one; the package is then skipped, below.
  *.so*) cp "$KTX_BUILT/$out" "$out" 2> /dev/null || c++ -shared -x c++ /dev/null -o "$out" ;;
  *) cp "$KTX_BUILT/$out" "$out" ;;
esac
SHIM
# The package's dependencies are asked of the machine, without installing anything.
printf '#!/bin/sh\nexec "$@"\n' > "$shims/sudo"
cat > "$shims/apt" <<'SHIM'
#!/usr/bin/env bash
set -euo pipefail
[ "$1" = install ]
apt-get -s install "$2" > /dev/null
dpkg-deb -x "$2" "$KTX_ROOT"
SHIM
# No test installs packages: what is missing shows below.
for manager in apt-get dnf; do
  printf '#!/bin/sh\n[ "$1" = -s ] && exec /usr/bin/%s "$@"\nexit 100\n' $manager > "$shims/$manager"
done
chmod +x "$shims"/*
export KTX_BUILT=$built KTX_ROOT=$root HOME=$work/home KTX_SERVE_PORT=0
export CMAKE_CXX_LINKER_LAUNCHER=$shims/ccache CMAKE_C_LINKER_LAUNCHER=$shims/ccache
export PATH=$shims:$root/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin

# The files that README's lines name.
cd "$copy"
model=$copy/tests/models/qwen3moe
ln -s "$model/qwen3moe-q4_k_m.gguf" model.gguf
ln -s "$model/config.json" config.json
ln -s rules/moe-experts-on-cpu.yaml rules.yaml
echo "Once upon a time" > prompt.txt
echo '{"messages": [{"role": "user", "content": "Tell me a story."}]}' > case.json

lacks() {  # WHAT: why a line that needs it is skipped; nothing where the machine has it
  case $1 in
    build) tools/dev/setup > /dev/null 2>&1 || echo "packages of a build are missing (tools/dev/setup)" ;;
    packages) tools/dev/setup --package > /dev/null 2>&1 || echo "some are missing, and a test installs none" ;;
    deb)
      for program in file dpkg-shlibdeps dpkg-deb apt-get; do
        command -v $program > /dev/null || echo "no $program"
      done
      [ -e "$built/libktx.so" ] || echo "$built has no libktx.so (KTX_LIBRARY)" ;;
  esac
}
no_build=$(lacks build) no_packages=$(lacks packages) no_package=$(lacks deb | head -1)
if [ -n "$no_build" ]; then  # the lines behind it still have their programs
  mkdir build
  ln -s "$built/ktx-compile" "$built/ktx-run" build/
fi
if [ -n "$no_package$no_build" ]; then
  mkdir -p "$root/usr/bin"
  ln -s "$built/ktx-compile" "$built/ktx-run" "$root/usr/bin/"
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
    *quickstart* | *portable*) why=$no_build ;;
    *"setup --package"*) why=$no_packages ;;
    *"cpack -G DEB"*) why=$no_package$no_build ;;
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
