package ignore

import (
	"math/bits"
	"strings"
)

// A pattern is compiled into a row of elements. Matching keeps the set of
// elements the text read so far can have led to, one bit each; the bit after
// the last element means that all of the pattern is used up.
type pattern struct {
	elements []element
	// never: a set is not closed or names an unknown class. Git gives up on such
	// a pattern for every text that gets that far.
	never bool
}

type elementKind uint8

const (
	literal   elementKind = iota // one byte
	anyByte                      // ?
	oneOf                        // […]
	star                         // *, no '/'
	starStar                     // **, any bytes
	anyParent                    // "**/": nothing, or any bytes and a '/'
)

type element struct {
	kind elementKind
	char byte
	set  *set
}

// set holds 256 bits, one for each byte that matches.
type set [4]uint64

func (s *set) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *set) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

// compile parses p as wildmatch.c in Git does. paths says that '/' is
// special (WM_PATHNAME); without it, * is the same as **. fold says that the
// text is folded to lower case before it is compared.
func compile(p string, paths, fold bool) *pattern {
	out := &pattern{}
	for i := 0; i < len(p); i++ {
		switch c := p[i]; c {
		case '\\':
			i++
			if i == len(p) {
				return &pattern{never: true}
			}
			out.elements = append(out.elements, element{kind: literal, char: p[i]})
		case '?':
			out.elements = append(out.elements, element{kind: anyByte})
		case '*':
			from := i
			for i+1 < len(p) && p[i+1] == '*' {
				i++
			}
			rest := p[i+1:]
			kind := star
			switch {
			case !paths:
				kind = starStar
			case i > from && (from == 0 || p[from-1] == '/') && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`)):
				kind = starStar
				if rest != "" && rest[0] == '/' {
					kind = anyParent
					i++
				}
			}
			out.elements = append(out.elements, element{kind: kind})
		case '[':
			members, length := parseSet(p[i:], paths, fold)
			if members == nil {
				return &pattern{never: true}
			}
			out.elements = append(out.elements, element{kind: oneOf, set: members})
			i += length - 1
		default:
			if fold {
				c = lower(c)
			}
			out.elements = append(out.elements, element{kind: literal, char: c})
		}
	}
	return out
}

// match reports whether all of text matches. paths and fold are those the
// pattern was compiled with.
func (p *pattern) match(text string, paths, fold bool) bool {
	if p.never {
		return false
	}
	words := len(p.elements)/64 + 1
	var few [2][4]uint64
	now, next := few[0][:], few[1][:]
	if words > len(now) {
		now, next = make([]uint64, words), make([]uint64, words)
	}
	now, next = now[:words], next[:words]

	p.enter(now, 0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		if fold {
			c = lower(c)
		}
		clear(next)
		var alive bool
		for w, word := range now {
			for word != 0 {
				at := w*64 + bits.TrailingZeros64(word)
				word &= word - 1
				if at < len(p.elements) && p.step(next, at, c, paths) {
					alive = true
				}
			}
		}
		if !alive {
			return false
		}
		now, next = next, now
	}
	end := len(p.elements)
	return now[end/64]&(1<<(end%64)) != 0
}

// step adds to next where element at can lead by reading c, and reports
// whether it leads anywhere.
func (p *pattern) step(next []uint64, at int, c byte, paths bool) bool {
	e := &p.elements[at]
	switch e.kind {
	case literal:
		if c != e.char {
			return false
		}
	case anyByte:
		if paths && c == '/' {
			return false
		}
	case oneOf:
		if !e.set.has(c) {
			return false
		}
	case star:
		if c == '/' {
			return false
		}
		p.enter(next, at)
		return true
	case starStar:
		p.enter(next, at)
		return true
	case anyParent:
		// It stays without being entered: what follows may begin only after a '/'.
		next[at/64] |= 1 << (at % 64)
		if c == '/' {
			p.enter(next, at+1)
		}
		return true
	}
	p.enter(next, at+1)
	return true
}

// enter adds element at to the states, and what follows if it can be empty.
func (p *pattern) enter(states []uint64, at int) {
	for {
		states[at/64] |= 1 << (at % 64)
		if at == len(p.elements) {
			return
		}
		switch p.elements[at].kind {
		case star, starStar, anyParent:
			at++
		default:
			return
		}
	}
}

// parseSet parses the set p begins with and returns its members and its length,
// nil if it is malformed. A ']' that is the first member stands for itself; a
// '-' makes a range unless it comes first, last, or after a range or class.
func parseSet(p string, paths, fold bool) (*set, int) {
	var members set
	i := 1
	negated := i < len(p) && (p[i] == '!' || p[i] == '^')
	if negated {
		i++
	}
	var before byte // what a range begins with, 0 if nothing can
	for first := true; ; first = false {
		if i >= len(p) {
			return nil, 0
		}
		c := p[i]
		switch {
		case c == ']' && !first:
			// The text is in lower case if it is folded, so bits of upper-case
			// members are never asked for.
			if negated {
				for w := range members {
					members[w] = ^members[w]
				}
			}
			if paths {
				members['/'>>6] &^= 1 << ('/' & 63)
			}
			return &members, i + 1
		case c == '\\':
			i++
			if i == len(p) {
				return nil, 0
			}
			c = p[i]
			members.add(c)
			before = c
		case c == '-' && before != 0 && i+1 < len(p) && p[i+1] != ']':
			i++
			if p[i] == '\\' {
				i++
				if i == len(p) {
					return nil, 0
				}
			}
			for m := int(before); m <= int(p[i]); m++ {
				members.add(byte(m))
				if fold {
					members.add(lower(byte(m)))
				}
			}
			before = 0
		case c == '[' && i+1 < len(p) && p[i+1] == ':':
			end := strings.IndexByte(p[i+2:], ']')
			if end < 0 {
				return nil, 0
			}
			name, closed := strings.CutSuffix(p[i+2:i+2+end], ":")
			if !closed {
				members.add('[')
				before = '['
				break
			}
			is := classes[name]
			if is == nil {
				return nil, 0
			}
			for m := range 128 {
				if is(byte(m)) {
					members.add(byte(m))
					if fold && name == "upper" {
						members.add(lower(byte(m)))
					}
				}
			}
			before = 0
			i += 2 + end
		default:
			members.add(c)
			before = c
		}
		i++
	}
}

// classes are those of Git's ctype table, for ASCII alone: no locale, and
// vertical tab and form feed are not spaces.
var classes = map[string]func(byte) bool{
	"alnum":  func(c byte) bool { return isAlpha(c) || isDigit(c) },
	"alpha":  isAlpha,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < 0x20 || c == 0x7f },
	"digit":  isDigit,
	"graph":  isGraph,
	"lower":  func(c byte) bool { return c >= 'a' && c <= 'z' },
	"print":  func(c byte) bool { return c >= 0x20 && c < 0x7f },
	"punct":  func(c byte) bool { return isGraph(c) && !isAlpha(c) && !isDigit(c) },
	"space":  func(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' },
	"upper":  func(c byte) bool { return c >= 'A' && c <= 'Z' },
	"xdigit": func(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' },
}

func isAlpha(c byte) bool { return lower(c) >= 'a' && lower(c) <= 'z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isGraph(c byte) bool { return c > 0x20 && c < 0x7f }

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
