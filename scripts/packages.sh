# To be sourced: where a release of Debian or Ubuntu has a package. Needs curl and xz.

# The newest file, below the mirror's address, of a package whose name is as the expression says; nothing where there is none.
package_file() { # mirror, release, expression
    curl -fsS "$1/dists/$2/main/binary-amd64/Packages.xz" | xz -dc |
        awk -v RS= -v name="^Package: $3\n" '$0 ~ name { match($0, /Filename: [^\n]*/); print substr($0, RSTART + 10, RLENGTH - 10) }' | sort -V | tail -1
}
