package rulesimport

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// wantNginx is the remedy for a file in another syntax.
const wantNginx = "pass the output of nginx -T"

// A directive is a directive of nginx, with the directives in its block.
type directive struct {
	line  int
	words []string
	block []*directive
	open  bool // it has a block
}

// isOn reports whether d switches something on.
func (d *directive) isOn() bool { return len(d.words) > 1 && d.words[1] == "on" }

// maxDepth bounds the nesting of blocks.
const maxDepth = 50

// readNginx reads a file of nginx, or the output of nginx -T.
func readNginx(name string, data []byte) ([]*directive, error) {
	headers := dumpHeader.FindAllSubmatchIndex(data, -1)
	if len(headers) == 0 {
		return nginxTree(name, string(data), 1)
	}
	d := &nginxDump{name: name, budget: maxDirectives}
	for i, h := range headers {
		end := len(data)
		if i+1 < len(headers) {
			end = headers[i+1][0]
		}
		tree, err := nginxTree(name, string(data[h[1]:end]), 1+bytes.Count(data[:h[1]], []byte("\n")))
		if err != nil {
			return nil, err
		}
		d.files = append(d.files, &nginxFile{path: string(data[h[2]:h[3]]), tree: tree})
	}
	return d.merge()
}

// dumpHeader matches the line that nginx -T writes before each file.
var dumpHeader = regexp.MustCompile(`(?m)^# configuration file (.+):\r?$`)

// maxDirectives bounds the directives of an nginxDump, because a few files that include each other
// could exhaust the memory.
const maxDirectives = 1 << 20

// An nginxDump is the output of nginx -T: the main file, and the files that are included.
type nginxDump struct {
	name   string
	files  []*nginxFile
	budget int // directives that may still be added
}

// An nginxFile is a file of an nginxDump.
type nginxFile struct {
	path     string
	tree     []*directive
	included bool
}

// merge returns the directives of the main file, with files in the place of the includes that name
// them, and then those of files that no include names.
func (d *nginxDump) merge() ([]*directive, error) {
	all, err := d.include(d.files[0].tree, 0)
	for _, f := range d.files[1:] {
		if err == nil && !f.included {
			all = append(all, f.tree...)
		}
	}
	return all, err
}

// include returns a copy of a tree with files in the place of the includes that name them.
func (d *nginxDump) include(tree []*directive, depth int) (all []*directive, err error) {
	for _, one := range tree {
		if d.budget--; d.budget < 0 || depth > maxDepth {
			return nil, fmt.Errorf("%s:%d: the files include each other, or have more than %d directives: "+
				"pass only the part that has the limits", d.name, one.line, maxDirectives)
		}
		files, isInclude := d.included(one)
		if !isInclude {
			copied := *one
			copied.block, err = d.include(one.block, depth)
			all = append(all, &copied)
		}
		for _, f := range files {
			var inner []*directive
			if err == nil {
				f.included = true
				inner, err = d.include(f.tree, depth+1)
			}
			all = append(all, inner...)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// included returns the files that an include names. It returns false for any other directive, and
// for an include of a file that is missing.
func (d *nginxDump) included(one *directive) (files []*nginxFile, ok bool) {
	if one.words[0] != "include" || len(one.words) != 2 {
		return nil, false
	}
	pattern := one.words[1]
	if !path.IsAbs(pattern) {
		pattern = path.Join(path.Dir(d.files[0].path), pattern)
	}
	files = slices.DeleteFunc(slices.Clone(d.files), func(f *nginxFile) bool {
		matches, err := path.Match(pattern, f.path)
		return err != nil || !matches
	})
	return files, len(files) > 0 || strings.Contains(pattern, "*") // a wildcard may match no file
}

// nginxTree reads the directives of a text that begins at a line.
func nginxTree(name, text string, line int) ([]*directive, error) {
	t := &nginxTokens{name: name, text: text, line: line}
	root := &directive{}
	stack := []*directive{root}
	current := &directive{}
	for {
		tok, err := t.next()
		top := stack[len(stack)-1]
		switch {
		case err != nil:
			return nil, err
		case tok.is(""):
			if len(stack) > 1 || len(current.words) > 0 {
				return nil, fmt.Errorf("%s:%d: the file ends before ; or }: %s", name, t.line, wantNginx)
			}
			return root.block, nil
		case tok.is("}"):
			if len(stack) == 1 || len(current.words) > 0 {
				return nil, fmt.Errorf("%s:%d: unexpected }: %s", name, tok.line, wantNginx)
			}
			stack = stack[:len(stack)-1]
		case tok.is(";") || tok.is("{"):
			if len(current.words) == 0 {
				return nil, fmt.Errorf("%s:%d: unexpected %s: %s", name, tok.line, tok.text, wantNginx)
			}
			top.block = append(top.block, current)
			current.open = tok.text == "{"
			switch {
			case current.open && strings.HasSuffix(current.words[0], "_by_lua_block"):
				if err := t.skipLua(); err != nil {
					return nil, err
				}
			case current.open:
				stack = append(stack, current)
				if len(stack) > maxDepth {
					return nil, fmt.Errorf("%s:%d: more than %d blocks in each other", name, tok.line, maxDepth)
				}
			}
			current = &directive{}
		default:
			if len(current.words) == 0 {
				current.line = tok.line
			}
			current.words = append(current.words, tok.text)
		}
	}
}

// nginxTokens splits a configuration of nginx into words and signs.
type nginxTokens struct {
	name, text string
	at, line   int
}

// A token is a word or a sign. An empty text without quotes is the end of the file.
type token struct {
	text   string
	quoted bool
	line   int
}

// is reports whether t is a sign.
func (t token) is(sign string) bool { return t.text == sign && !t.quoted }

var (
	nginxSpace  = regexp.MustCompile(`^(?:[ \t\r\n]|#[^\n]*)*`)
	nginxQuoted = regexp.MustCompile(`^(?:"(?:[^"\\]|\\(?s:.))*"|'(?:[^'\\]|\\(?s:.))*')`)
	nginxWord   = regexp.MustCompile(`^(?:\$\{[^}]*(\}?)|\\(?s:.)|[^ \t\r\n;{}])+`) // the group is the end of the last ${name}
)

func (t *nginxTokens) next() (token, error) {
	t.skip(len(nginxSpace.FindString(t.text[t.at:])))
	rest, tok := t.text[t.at:], token{line: t.line}
	switch {
	case rest == "":
	case strings.ContainsAny(rest[:1], "{};"):
		tok.text = rest[:1]
		t.skip(1)
	case strings.ContainsAny(rest[:1], `'"`):
		quoted := nginxQuoted.FindString(rest)
		if quoted == "" {
			return tok, fmt.Errorf("%s:%d: the quote has no end: %s", t.name, tok.line, wantNginx)
		}
		unescape := strings.NewReplacer(`\\`, `\`, `\`+quoted[:1], quoted[:1])
		tok.text, tok.quoted = unescape.Replace(quoted[1:len(quoted)-1]), true
		t.skip(len(quoted))
	default:
		word := nginxWord.FindStringSubmatchIndex(rest)
		if word[2] >= 0 && word[2] == word[3] {
			return tok, fmt.Errorf("%s:%d: ${ has no end: %s", t.name, tok.line, wantNginx)
		}
		tok.text = rest[:word[1]]
		t.skip(word[1])
	}
	return tok, nil
}

// skip skips n bytes.
func (t *nginxTokens) skip(n int) {
	t.line += strings.Count(t.text[t.at:t.at+n], "\n")
	t.at += n
}

var (
	luaLongBracket = regexp.MustCompile(`^(?:--)?\[(=*)\[`) // begins a text or a comment of several lines
	luaLiteral     = regexp.MustCompile(`^(?:--[^\n]*|"(?:[^"\\]|\\(?s:.))*"|'(?:[^'\\]|\\(?s:.))*')`)
)

// skipLua skips a block of Lua, and the brace that ends it. Braces and quotes in texts and comments
// do not count.
func (t *nginxTokens) skipLua() error {
	line := t.line
	for depth := 1; depth > 0; {
		rest, length := t.text[t.at:], 1
		switch {
		case luaLongBracket.MatchString(rest):
			end := "]" + luaLongBracket.FindStringSubmatch(rest)[1] + "]"
			before, _, found := strings.Cut(rest, end)
			if !found {
				rest = ""
			}
			length = len(before) + len(end)
		case luaLiteral.MatchString(rest):
			length = len(luaLiteral.FindString(rest))
		case strings.HasPrefix(rest, "{"):
			depth++
		case strings.HasPrefix(rest, "}"):
			depth--
		}
		if rest == "" {
			return fmt.Errorf("%s:%d: the block of Lua has no end: %s", t.name, line, wantNginx)
		}
		t.skip(length)
	}
	return nil
}
