#!/bin/sh
# Every lint passes on a small good tree and fails on that tree with one fault of its kind.
set -u
src=$FT_SOURCE
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
fail=0
n=0

good() {
    rm -rf "$tmp/t"
    mkdir -p "$tmp/t/base" "$tmp/t/launcher" "$tmp/t/kernels/cpu"
    cp "$src/.clang-format" "$tmp/t/"
    printf '#ifndef A_H\n#define A_H\nint ft_a(int x);\n#endif\n' >"$tmp/t/base/a.h"
    printf '#include "base/a.h"\n\nint ft_a(int x) { return x + 1; }\n' >"$tmp/t/base/a.c"
}
# expect STATUS LINT WHAT [ARG]
expect() {
    if [ "$2" = format ] && ! command -v clang-format-14 >/dev/null && ! command -v clang-format >/dev/null; then
        echo "lint format, $3: left out, no clang-format here (scripts/install-deps --lint)"
        return
    fi
    n=$((n + 1))
    out=$("$src/scripts/lint/$2" "${4:-$tmp/t}" 2>&1)
    got=$?
    if [ $got -ne "$1" ]; then
        echo "lint $2, $3: exit $got, expected $1"
        echo "$out"
        fail=1
    fi
}

good
for lint in layers banned length format headers-alone; do expect 0 $lint "a good tree"; done

put() { # FILE TEXT: a good tree with one more file
    good
    printf "$2" >"$tmp/t/$1"
}
put base/b.c '#include "launcher/x.h"\n'
expect 1 layers "base includes launcher"
put kernels/cpu/b.c '#include "base/a.h"\n'
expect 1 layers "kernels include base"
put launcher/b.c '#include <jansson.h>\n'
expect 1 layers "jansson outside base/json.c"
put launcher/agent_x.c '#include "base/json.h"\n'
expect 1 layers "the agent includes json"
put launcher/b.c '#include "b.h"\n'
expect 1 layers "an include that is not root-relative"
for f in strcpy strcat sprintf gets strtok atoi system popen rand alloca setjmp exit; do
    put base/b.c "void ft_b(char *a);\nvoid ft_b(char *a) { $f(a); }\n"
    expect 1 banned "$f"
done
put base/b.c 'void ft_b(void);\n/* strcpy(a) is named */\nvoid ft_b(void) { ft_a("system(x)"); }\n'
expect 0 banned "names in comments and texts"
good
i=0
while [ $i -lt 601 ]; do
    echo "/* $i */"
    i=$((i + 1))
done >"$tmp/t/base/b.c"
expect 1 length "601 lines"
put base/b.c 'int  ft_b( void ){return 1 ;}\n'
expect 1 format "a badly set line"
put base/b.h '#ifndef B_H\n#define B_H\nsize_t ft_b(void);\n#endif\n'
expect 1 headers-alone "size_t without its header"

# symbols wants libraries: built here with the compiler of the build
lib() {
    rm -rf "$tmp/l"
    mkdir -p "$tmp/l"
    printf "$1" >"$tmp/l/a.c"
    ${CC:-cc} -c -fPIC "$tmp/l/a.c" -o "$tmp/l/a.o" && ar rcs "$tmp/l/libft_a.a" "$tmp/l/a.o"
}
lib 'int ft_a(void) { static const char *const t[] = {"x"}; return t[0][0]; }\n'
expect 0 symbols "constants only" "$tmp/l"
lib 'int helper(void) { return 1; }\n'
expect 1 symbols "a name without ft_" "$tmp/l"
lib 'int ft_a(void) { static int count; return ++count; }\n'
expect 1 symbols "a mutable global" "$tmp/l"
mkdir -p "$tmp/l/bin"
lib 'int ft_a(void) { return 1; }\n'
mkdir -p "$tmp/l/bin"
printf '#include <math.h>\nint main(int c, char **v) { (void)v; return (int)cos(c); }\n' >"$tmp/l/m.c"
${CC:-cc} "$tmp/l/m.c" -o "$tmp/l/bin/ftlaunch-agent" -Wl,--no-as-needed -lm
expect 1 symbols "an agent that needs libm" "$tmp/l"
rm -rf "$tmp/l/bin"
plugin() { printf "$1" >"$tmp/l/p.c" && ${CC:-cc} -shared -fPIC "$tmp/l/p.c" -o "$tmp/l/libft_p.so"; }
lib 'int ft_a(void) { return 1; }\n'
plugin '__attribute__((visibility("hidden"))) int help(void) { return 1; }\nconst void *ft_p_plugin(void) { return help() ? "" : 0; }\n'
expect 0 symbols "a plugin of one function" "$tmp/l"
plugin 'int ft_help(void) { return 1; }\nconst void *ft_p_plugin(void) { return ft_help() ? "" : 0; }\n'
expect 1 symbols "a plugin of two" "$tmp/l"

echo "$n lint cases"
[ $n -ge 20 ] || fail=1
exit $fail
