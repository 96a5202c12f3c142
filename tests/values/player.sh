# tests/values/player.sh: compiles the player with $object, for `. tests/values/player.sh`, into a
# directory that is removed in the end, and tells the scripts beside it the version to expect.
directory=$(mktemp -d) || exit 1
trap 'rm -rf "$directory"' EXIT

${CC:-gcc} -std=c99 -O0 -Wall -Wextra -pedantic -Wconversion -Wshadow -Wundef -Werror -I. \
    tests/values/play.c "$object" -o "$directory/play" -pthread -rdynamic -Wl,--build-id || exit 1
MEMLORD_VERSION=$(sed -n 's/^#define MEMLORD_VERSION "\(.*\)"/\1/p' memlord.h)
export MEMLORD_VERSION PYTHONDONTWRITEBYTECODE=1
