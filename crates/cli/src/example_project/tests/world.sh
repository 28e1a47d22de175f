# Without a name, the world is greeted.
output="$(sh greet.sh)"
[ "$output" = "Hello, world!" ] || {
    echo "expected \"Hello, world!\", got \"$output\""
    exit 1
}
