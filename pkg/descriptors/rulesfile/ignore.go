package rulesfile

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/internal/spelling"
)

// ignoreWord begins a comment that silences warnings: # weir:ignore ID, ID -- reason
const ignoreWord = "weir:ignore"

// An ignore is one id of such a comment. It silences warnings on its line or, if the comment is
// alone on its line, on the next line with a key.
type ignore struct {
	file         string
	line, column int // position of the id
	silencedLine int // the line whose warnings it silences
	id           string
}

// ignores returns the ids of all comments in data, which parses to root.
func ignores(file string, data []byte, root *yaml.Node) []ignore {
	if !bytes.Contains(data, []byte(ignoreWord)) {
		return nil
	}
	inText := map[int]bool{}
	linesOfTexts(root, strings.Split(string(data), "\n"), inText)
	var all []ignore
	placed, number := 0, 0 // placed is the number of ignores whose line is known
	for line := range strings.Lines(string(data)) {
		number++
		code, comment := splitComment(strings.TrimRight(line, "\r\n"))
		if inText[number] {
			code, comment = line, ""
		}
		all = append(all, idsOf(file, number, len([]rune(code))+1, comment)...)
		if strings.TrimSpace(code) != "" {
			for ; placed < len(all); placed++ {
				all[placed].silencedLine = number
			}
		}
	}
	return all
}

// linesOfTexts adds the lines of multi-line texts that contain ignoreWord, which are not comments.
// Folding changes the spaces and line breaks of a text, so its end is found by its other characters.
func linesOfTexts(n *yaml.Node, source []string, lines map[int]bool) {
	if n == nil {
		return
	}
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, ignoreWord) {
		rest := characters(n.Value)
		first := n.Line - 1
		if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			first++ // after the line with | or >
		}
		for i := first; i < len(source) && rest > 0; i++ {
			lines[i+1] = true
			text := source[i]
			if i == n.Line-1 {
				text = text[min(n.Column-1, len(text)):]
			}
			if n.Style&yaml.DoubleQuotedStyle != 0 {
				text = escape.ReplaceAllString(text, ".")
			}
			rest -= characters(text) // at least those of the value, so the loop never passes its end
		}
	}
	for _, c := range n.Content {
		linesOfTexts(c, source, lines)
	}
}

// escape matches an escape in double quotes, which stands for at most one character.
var escape = regexp.MustCompile(`\\.`)

// characters returns the number of bytes of text that are no white space.
func characters(text string) int { return len(strings.Join(strings.Fields(text), "")) }

// splitComment splits a line before the '#' of its comment.
func splitComment(line string) (code, comment string) {
	quote := byte(0)
	for i := range len(line) {
		c := line[i]
		begins := i == 0 || strings.IndexByte(" \t[{,:-", line[i-1]) >= 0
		switch {
		case quote != 0:
			if c == quote && (c == '\'' || line[i-1] != '\\') {
				quote = 0
			}
		case c == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t'):
			return line[:i], line[i:]
		case (c == '"' || c == '\'') && begins:
			quote = c
		}
	}
	return line, ""
}

// idsOf returns the ids of a comment that begins at column. Text after " -- " is the reason. A
// comment without ids has the id "".
func idsOf(file string, line, column int, comment string) (all []ignore) {
	text := strings.TrimLeft(comment, "#")
	text = strings.TrimLeft(text, " \t")
	rest, found := strings.CutPrefix(text, ignoreWord)
	if !found || rest != "" && !strings.HasPrefix(rest, " ") && !strings.HasPrefix(rest, "\t") {
		return nil
	}
	start := column + len(comment) - len(text) // the text before the reason is ASCII, or an unknown id
	rest, _, _ = strings.Cut(rest+" ", " -- ")
	at := start + len(ignoreWord)
	for len(rest) > 0 {
		skipped := len(rest) - len(strings.TrimLeft(rest, " \t,"))
		rest, at = rest[skipped:], at+skipped
		end := strings.IndexAny(rest, " \t,")
		if end < 0 {
			end = len(rest)
		}
		if end > 0 {
			all = append(all, ignore{file: file, line: line, column: at, id: rest[:end]})
		}
		rest, at = rest[end:], at+end
	}
	if all == nil {
		all = []ignore{{file: file, line: line, column: start}}
	}
	return all
}

// silence removes the silenced warnings, sorts the rest, and adds a warning for each ignore that
// silences nothing. It does not warn about ids in unchecked, whose checks did not run.
func silence(warnings []Diagnostic, all []ignore, unchecked ...string) []Diagnostic {
	type key struct {
		file string
		line int
		id   string
	}
	used := map[key]bool{}
	for _, i := range all {
		used[key{i.file, i.silencedLine, i.id}] = false
	}
	warnings = slices.DeleteFunc(warnings, func(w Diagnostic) bool {
		k := key{w.File, w.Line, w.ID}
		_, silenced := used[k]
		if silenced {
			used[k] = true
		}
		return silenced || slices.Contains(unchecked, w.ID)
	})
	for _, i := range all[:min(len(all), maxWarnings)] {
		w := Diagnostic{File: i.file, Line: i.line, Column: i.column, ID: unusedIgnore, Remedy: "remove it"}
		switch {
		case !slices.Contains(warningIDs, i.id):
			w.ID, w.Message, w.Remedy = unknownIgnore, fmt.Sprintf("no warning has the id '%s'",
				excerpt(strings.Map(printable, i.id))), suggestID(i.id)
			if i.id == "" {
				w.Message = "the comment " + ignoreWord + " names no id"
			}
		case used[key{i.file, i.silencedLine, i.id}] || slices.Contains(unchecked, i.id):
			continue
		default:
			w.Message = fmt.Sprintf("the comment silences nothing: no warning %s is on this line or the next", i.id)
		}
		warnings = append(warnings, w)
	}
	slices.SortFunc(warnings, Diagnostic.compare)
	return slices.Compact(warnings)
}

func suggestID(id string) string {
	if best := spelling.Nearest(id, warningIDs); best != "" {
		return fmt.Sprintf("did you mean '%s'?", best)
	}
	return "write an id of docs/lint.md, such as " + unreachableRule
}
