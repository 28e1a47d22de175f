cat <<EOF | sh
git push
EOF
