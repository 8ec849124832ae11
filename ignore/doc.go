// Package ignore decides which paths Git would leave out of a repository:
// gitignore(5) exactly, with the corners Git's implementation has (dir.c and
// wildmatch.c, as of Git 2.39 and later).
//
// A List is the rules of one file. A Stack applies all files that bear on a
// work tree, in Git's order of precedence:
//
//  1. the .gitignore file in the directory of the path, then the ones in its
//     parents, up to the root;
//  2. $GIT_DIR/info/exclude;
//  3. the file core.excludesFile names.
//
// Within a file the last rule that matches decides. What lies in an excluded
// directory is excluded whatever the rules say of it, and the .gitignore files
// in there are not read. Whether a path is tracked, and so never ignored, is
// not this package's concern.
//
// # One rule
//
// A line is a rule unless it is empty or begins with '#'. A byte order mark at
// the beginning of the file, the CR of a CR LF, and trailing spaces that no
// backslash quotes are not part of it. A NUL ends the line's text. Then, in
// this order: a leading '!' negates; one trailing '/' makes it a rule for
// directories alone; if a '/' is left, the pattern is matched against the whole
// path below the file's directory, otherwise against the last name alone. A
// leading '/' is then dropped.
//
// # Patterns
//
//	?      any byte but '/'
//	*      any bytes without a '/'
//	[…]    one byte of a set, never '/': bytes, ranges, [:class:], negated by '!'
//	       or '^'; without its ']' the pattern matches nothing
//	\x     the byte x
//	**     between slashes or the pattern's ends: any bytes; with the '/' after
//	       it also none at all; elsewhere the same as *
//
// One corner follows from Git comparing a pattern's part before its first
// special character literally and handing only the rest to wildmatch: in
// "foo**/bar" the ** counts as being at the pattern's beginning. Case folding
// (core.ignoreCase) is ASCII's, and spares quoted bytes and single bytes of
// a set, as in Git.
//
// A pattern is compiled and matched by running all its states over the text at
// once, so no pattern is worse than its length times the path's.
//
// # Why not go-git's
//
// go-git 5.19's plumbing/format/gitignore was held against `git check-ignore`
// on this package's test tree. It decides otherwise for: "foo/**" and "ab/**/"
// (excludes the directory itself, so that "!" below it cannot work), "/**"
// (matches nothing), "**/z/**" and "x/y**" (misses paths), "[!ab]" (a set of
// three members) and "[[:digit:]]" (sets are those of path/filepath). It leaves
// comments, CR LF and the byte order mark to its caller, tells not which rule
// decided, and knows no case folding.
package ignore
