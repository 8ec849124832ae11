package main

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
)

// syntheticVersion is part of a made repository's name; raise it with any
// change to what generate makes.
const syntheticVersion = 1

// generate adds exactly n files, the same ones each time:
//
//   - directories like a large project's: core/ holds half of the files, the
//     others a quarter, an eighth and so on; below, a directory has 4 to 16
//     files of its own and 3 to 8 subdirectories of uneven size
//   - sizes log-normal with a mean of 4 KiB, at most 1 MiB
//   - text that compresses about as source code does, no two files alike
//   - 2 of 100 files executable, 1 of 200 a symbolic link to its neighbour
func generate(n int, add addFile) error {
	g := &generator{rng: rand.New(rand.NewPCG(uint64(n), syntheticVersion)), add: add}
	g.writeText()
	tops := []string{"core", "lib", "drivers", "tools", "docs", "tests"}
	for i, top := range tops {
		share := n / 2
		if i == len(tops)-1 {
			share = n
		}
		if err := g.directory(top, share); err != nil {
			return err
		}
		n -= share
	}
	return nil
}

type generator struct {
	rng  *rand.Rand
	add  addFile
	text []byte // contents are slices of it
	buf  bytes.Buffer
	made int
}

const (
	maxFileSize = 1 << 20
	meanSize    = 4096
	sizeSigma   = 1.0
)

func (g *generator) writeText() {
	vocabulary := make([]string, 2000)
	for i := range vocabulary {
		word := make([]byte, 2+g.rng.IntN(9))
		for j := range word {
			word[j] = 'a' + byte(g.rng.IntN(26))
		}
		vocabulary[i] = string(word)
	}
	for len(g.text) < 2*maxFileSize {
		// Squaring prefers the words at the front, as language does.
		x := g.rng.Float64()
		g.text = append(g.text, vocabulary[int(x*x*float64(len(vocabulary)))]...)
		if g.rng.IntN(10) == 0 {
			g.text = append(g.text, '\n')
		} else {
			g.text = append(g.text, ' ')
		}
	}
}

// directory adds n files at and below path.
func (g *generator) directory(path string, n int) error {
	const leaf = 24
	own := n
	if n > leaf {
		own = 4 + g.rng.IntN(13)
	}
	for i := range own {
		if err := g.file(path, i); err != nil {
			return err
		}
	}
	n -= own
	for i, left := 0, 3+g.rng.IntN(6); n > 0; i, left = i+1, left-1 {
		share := n
		if left > 1 {
			// Between half and one and a half of an even share.
			share = min(n, 1+int(float64(n)/float64(left)*(0.5+g.rng.Float64())))
		}
		if err := g.directory(fmt.Sprintf("%s/part%02d", path, i), share); err != nil {
			return err
		}
		n -= share
	}
	return nil
}

func (g *generator) file(dir string, i int) error {
	g.made++
	name := func(i int) string { return fmt.Sprintf("file%02d.c", i) }
	path := dir + "/" + name(i)
	if i > 0 && g.rng.IntN(200) == 0 {
		return g.add(path, "120000", []byte(name(i-1)))
	}
	mode := "100644"
	if g.rng.IntN(50) == 0 {
		mode = "100755"
	}
	mu := math.Log(meanSize) - sizeSigma*sizeSigma/2
	size := min(int(math.Exp(mu+sizeSigma*g.rng.NormFloat64())), maxFileSize)
	g.buf.Reset()
	fmt.Fprintf(&g.buf, "// %d %s\n", g.made, path)
	if rest := size - g.buf.Len(); rest > 0 {
		from := g.rng.IntN(len(g.text) - rest)
		g.buf.Write(g.text[from : from+rest])
	}
	return g.add(path, mode, g.buf.Bytes())
}
