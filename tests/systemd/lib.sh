# SPDX-License-Identifier: Apache-2.0
#
# For the scripts that run in the machine.
PATH=/usr/local/sbin:/usr/local/bin:$PATH
trap 'journalctl -b -o short-monotonic >/out/journal 2>/dev/null || true' EXIT

step() {
	printf -- '- %s\n' "$*"
}
die() {
	echo "FAILED: $*"
	systemctl list-units --no-pager --all "hugepool*" || true
	exit 1
}
# until_true SECONDS COMMAND...
until_true() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < deadline)) || return 1
		sleep 0.05
	done
}
property() {
	systemctl show -P "$1" hugepoold.service
}
rounds() {
	read -r word number <"$1" && [[ $word == rounds ]] && echo "$number"
}
# The holder goes on: in a while it has done more rounds than now.
goes_on() {
	local before
	before=$(rounds "$1") || die "holder: $(<"$1")"
	until_true 30 more_rounds "$1" "$before" || die "the holder stands still: $(<"$1")"
}
more_rounds() {
	(($(rounds "$1") > $2 + 2))
}
member=(setpriv --reuid hptest --regid hptest --groups)
as_member() {
	"${member[@]}" "$(getent group hugepool | cut -d: -f3)" "$@"
}
