# shellcheck shell=bash
# The launchers' option block: registration, checks, the --help table, what differs from it. Sourced by launch_lib.sh.

ENTRIES=()                                                # option names, and headings behind a '#'
declare -A DEFAULT=() HELP=() KIND=() CHOICES=() GIVEN=()
OWN_PREFIXES=() PROBLEMS=()
readonly INTEGER='^-?(0|[1-9][0-9]{0,14})$'
readonly NUMBER='^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$'
readonly LIST='^\[( *[A-Za-z0-9_."-]+ *(, *[A-Za-z0-9_."-]+ *)*)? *\]$'
mapfile -t EXPORTED < <(compgen -e)

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
problem() { PROBLEMS+=("$*"); }
stop_on_problems() {
  local line
  for line in "${PROBLEMS[@]}"; do say "error: ${line}"; done
  ((${#PROBLEMS[@]} == 0)) || exit 2
}

group() { ENTRIES+=("#$1"); }

# option NAME DEFAULT HELP: the form of the default is the option's type. Unset and empty both mean the default.
option() {
  local name=$1 kind=text
  if [[ ${2,,} == true || ${2,,} == false ]]; then kind=switch
  elif [[ $2 =~ ${INTEGER} ]]; then kind=integer
  elif [[ $2 =~ ${NUMBER} ]]; then kind=number
  elif [[ $2 =~ ${LIST} ]]; then kind=list
  fi
  ENTRIES+=("${name}") DEFAULT[${name}]=$2 HELP[${name}]=$3 KIND[${name}]=${kind}
  if [[ -n ${!name-} ]]; then GIVEN[${name}]=1; else printf -v "${name}" '%s' "$2"; fi
}
own_prefixes() { OWN_PREFIXES=("$@"); }
one_of() { CHOICES[$1]=${*:2}; }
is_set() { [[ -n ${GIVEN[$1]-} ]]; }
is_option() { [[ -n $1 && -n ${HELP[$1]-} ]]; }
shown() {  # the value as it may be printed; secrets never are
  case $1 in *_KEY | *TOKEN | *SECRET | *PASSWORD) printf '...' ;; *) printf '%s' "${!1}" ;; esac
}

show_help() {
  local line name
  while read -r line && [[ ${line} == '#'* ]]; do
    [[ ${line} == '#!'* ]] || printf '%s\n' "${line#\#}"
  done <"$0"
  for name in "${ENTRIES[@]}"; do
    if [[ ${name} == '#'* ]]; then printf '\n%s\n' "${name#\#}"; continue; fi
    printf '  %-36s %-18s %s\n' "${name}" "${DEFAULT[${name}]}" "${HELP[${name}]}"
  done
}

read_arguments() {
  local word key name   # the values are not shown: one may be a secret
  for word; do
    key=${word%%=*} name=${key#-} name=${name#-} name=${name//-/_} name=${name^^}
    if [[ ${word} == -h || ${word} == --help ]]; then show_help; exit 0
    elif is_option "${name}" || [[ ${key} =~ ^[A-Z][A-Z0-9_]*$ && ${word} == *=* ]]; then
      problem "${key}: is set in the environment, not as an argument: ${name}=... bash ${0##*/}"
    elif [[ ${word} == -* || ${word} != [~]* && ${word} != *=* ]]; then
      problem "${key}: neither an option (see --help) nor a Hydra override of the form key=value"
    fi
  done
}

check_options() {
  local name value
  for name in "${ENTRIES[@]}"; do
    is_option "${name}" || continue
    is_set "${name}" || [[ ${KIND[${name}]} == switch ]] || continue
    value=${!name}
    if [[ ${CHOICES[${name}]-} == "0 1" ]]; then   # switches of the launcher, in the other spelling
      case ${value,,} in true) value=1 ;; false) value=0 ;; esac
      printf -v "${name}" '%s' "${value}"
    fi
    if [[ -n ${CHOICES[${name}]-} ]]; then
      [[ " ${CHOICES[${name}]} " == *" ${value} "* ]] || problem "${name}=${value}: must be one of ${CHOICES[${name}]}"
      continue
    fi
    case ${KIND[${name}]} in
      switch) case ${value,,} in
          true | 1) printf -v "${name}" True ;;
          false | 0) printf -v "${name}" False ;;
          *) problem "${name}=${value}: must be True or False" ;;
        esac ;;
      integer) [[ ${value} =~ ${INTEGER} ]] || problem "${name}=${value}: must be a whole number" ;;
      number) [[ ${value} =~ ${NUMBER} ]] || problem "${name}=${value}: must be a number" ;;
      list)
        [[ ${value} == \[* ]] || printf -v "${name}" '[%s]' "${value}"
        [[ ${!name} =~ ${LIST} ]] || problem "${name}=${value}: must be a list such as [a,b]" ;;
    esac
  done
}
differs() { is_set "$1" && local default=${DEFAULT[$1]} && [[ ${!1} != "${default}" && ${!1,,} != "${default,,}" ]]; }

report_changes() {
  local name
  for name in "${ENTRIES[@]}"; do
    is_option "${name}" || continue
    ! differs "${name}" || say "${name}=$(shown "${name}") (default: ${DEFAULT[${name}]:-empty})"
  done
  while read -r name; do say "${name}"; done < <(ignored_variables)
}

# Exported names that look like ours and are not. TMPDIR is one edit from TMP_DIR, and means something else.
ignored_variables() {
  {
    printf 'option %s\n' "${!HELP[@]}"
    printf 'prefix %s\n' "${OWN_PREFIXES[@]}"
    printf 'variable %s\n' "${EXPORTED[@]}"
  } | awk '
    function edits(a, b, limit,    i, j, row, corner, up, least) {   # Levenshtein distance, as far as it is below limit
      for (j = 0; j <= length(b); j++) row[j] = j
      for (i = 1; i <= length(a); i++) {
        corner = row[0]; row[0] = least = i
        for (j = 1; j <= length(b); j++) {
          up = row[j]
          corner += substr(a, i, 1) != substr(b, j, 1)
          if (up + 1 < corner) corner = up + 1
          if (row[j - 1] + 1 < corner) corner = row[j - 1] + 1
          if (corner < least) least = corner
          row[j] = corner; corner = up
        }
        if (least >= limit) return limit
      }
      return row[length(b)]
    }
    $1 == "option" { options[$2] }
    $1 == "prefix" { prefixes[$2] }
    $1 == "variable" && $2 != "TMPDIR" && !($2 in options) {
      ours = 0; best = 3; guess = ""
      for (p in prefixes) if (index($2, p) == 1) ours = 1
      if (ours && length($2) > 11) best = int(length($2) / 4) + 1
      for (o in options) {
        gap = length(o) - length($2)
        if (gap < best && -gap < best && (d = edits($2, o, best)) < best) { best = d; guess = o }
      }
      if (ours || guess != "") print "ignored: " $2 (guess != "" ? " (did you mean " guess "?)" : "")
    }' | sort
}
