package rulesfile

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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

// ignores returns the ids of all comments in data, which is valid YAML.
func ignores(file string, data []byte) []ignore {
	if !bytes.Contains(data, []byte(ignoreWord)) {
		return nil
	}
	lines := strings.Split(string(data), "\n")
	inTexts := hashesInTexts(lines)
	var all []ignore
	placed := 0 // the number of ignores whose silencedLine is known
	for i, line := range lines {
		code, comment := splitComment(strings.TrimRight(line, "\r"), inTexts[i])
		all = append(all, idsOf(file, i+1, utf8.RuneCountInString(code)+1, comment)...)
		if strings.TrimSpace(code) != "" {
			for ; placed < len(all); placed++ {
				all[placed].silencedLine = i + 1
			}
		}
	}
	return all
}

var (
	hash       = regexp.MustCompile(`(?:^|[ \t])#`) // begins a comment, unless it is in a text
	markedHash = regexp.MustCompile(`#` + ignoreWord + `(\d+);`)
	idOfIgnore = regexp.MustCompile(`[^ \t,]+`)
)

// hashesInTexts returns the number of '#' in the texts of each line that contains ignoreWord. These
// '#' begin no comment. The YAML library reports no positions of comments. Therefore hashesInTexts
// writes a marker with the index of its line after each '#', parses this copy of the file, and
// counts the markers in texts.
func hashesInTexts(lines []string) map[int]int {
	marked := slices.Clone(lines)
	for i, line := range lines {
		if strings.Contains(line, ignoreWord) {
			marked[i] = hash.ReplaceAllString(line, fmt.Sprintf("${0}%s%d;", ignoreWord, i))
		}
	}
	counts := map[int]int{}
	var count func(n *yaml.Node)
	count = func(n *yaml.Node) {
		for _, mark := range markedHash.FindAllStringSubmatch(n.Value, -1) {
			i, _ := strconv.Atoi(mark[1])
			counts[i]++
		}
		for _, c := range n.Content {
			count(c)
		}
	}
	if root, _, err := decode([]byte(strings.Join(marked, "\n"))); err == nil && root != nil {
		count(root)
	}
	return counts
}

// splitComment splits a line before its comment. The line's texts, which precede its comment,
// contain the first inTexts of its '#'.
func splitComment(line string, inTexts int) (code, comment string) {
	hashes := hash.FindAllStringIndex(line, -1)
	if inTexts >= len(hashes) {
		return line, ""
	}
	start := hashes[inTexts][1] - 1
	return line[:start], line[start:]
}

// idsOf returns the ids of a comment that begins at column. Text after " -- " is the reason. A
// comment without ids has the id "".
func idsOf(file string, line, column int, comment string) (all []ignore) {
	text := strings.TrimLeft(strings.TrimLeft(comment, "#"), " \t")
	rest, found := strings.CutPrefix(text, ignoreWord)
	if !found || rest != "" && !strings.HasPrefix(rest, " ") && !strings.HasPrefix(rest, "\t") {
		return nil
	}
	column += len(comment) - len(text) // the text before the reason is ASCII, or an unknown id
	rest, _, _ = strings.Cut(rest+" ", " -- ")
	for _, at := range idOfIgnore.FindAllStringIndex(rest, -1) {
		all = append(all, ignore{file: file, line: line, column: column + len(ignoreWord) + at[0], id: rest[at[0]:at[1]]})
	}
	if all == nil {
		all = []ignore{{file: file, line: line, column: column}}
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
		warn := func(id, message, remedy string) {
			warnings = append(warnings, Diagnostic{i.file, i.line, i.column, id, message, remedy})
		}
		switch {
		case i.id == "":
			warn(unknownIgnore, "the comment "+ignoreWord+" names no id", suggestID(i.id))
		case !slices.Contains(warningIDs, i.id):
			warn(unknownIgnore, fmt.Sprintf("no warning has the id '%s'", excerpt(strings.Map(printable, i.id))), suggestID(i.id))
		case used[key{i.file, i.silencedLine, i.id}] || slices.Contains(unchecked, i.id):
		default:
			warn(unusedIgnore, fmt.Sprintf("the comment silences nothing: no warning %s is on this line or the next", i.id), "remove it")
		}
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
