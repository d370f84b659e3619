package rulesdiff

import (
	"cmp"
	"fmt"
	"strings"
)

// maxMarkdownBytes bounds a report in Markdown. GitHub takes comments of at most 65,536 characters.
const maxMarkdownBytes = 60_000

// code returns a text as code in Markdown, so that no text of a request is a link, a mention or
// HTML. It fits into a table.
func code(text string) string {
	if text == "" {
		return ""
	}
	text = strings.NewReplacer("`", "'", "|", `\|`).Replace(bounded(text))
	return "`" + text + "`"
}

// Markdown returns the report as Markdown for a comment on a pull request.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### Rate limits: %s\n\n%s.\n\n", r.headline(), r.summary())
	b.WriteString("| rules | version | allowed | denied | no rule |\n|---|---|--:|--:|--:|\n")
	for _, s := range []struct {
		name string
		side Side
	}{{"old", r.Old}, {"new", r.New}} {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d |\n", s.name, code(s.side.Version), s.side.Allowed, s.side.Denied, s.side.Unmatched)
	}
	if len(r.Limits) > 0 {
		b.WriteString("\n| domain | rule | limit | status | old | new | newly denied keys | requests | newly allowed keys | requests |\n" +
			"|---|---|---|---|---|---|--:|--:|--:|--:|\n")
	}
	more := 0
	for i, l := range r.Limits {
		if i >= maxLimits || b.Len() > maxMarkdownBytes/2 {
			more++
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %d | %d | %d | %d |\n", code(l.Domain), code(l.Path), code(l.Name), l.status(),
			cmp.Or(code(l.Old), "-"), cmp.Or(code(l.New), "-"), l.NewlyDeniedKeys, l.NewlyDeniedRequests, l.NewlyAllowedKeys, l.NewlyAllowedRequests)
	}
	if more > 0 {
		fmt.Fprintf(&b, "\nand %d more limits.\n", more)
	}
	if n := len(r.CannotMatch); n > 0 {
		b.WriteString("\n**Not compared:** the recording has the values of these new rules only as hashes, so their effect is unknown.\n\n")
		for _, c := range r.CannotMatch[:min(n, maxListed)] {
			fmt.Fprintf(&b, "- %s (%s): the values of %s\n", code(c.Path), code(c.Source), code(c.Key))
		}
		if n > maxListed {
			fmt.Fprintf(&b, "- and %d more\n", n-maxListed)
		}
	}
	for _, note := range r.notes() {
		fmt.Fprintf(&b, "\n**Note:** %s\n", note)
	}
	r.markdownKeys(&b)
	return b.String()
}

func (r *Report) markdownKeys(b *strings.Builder) {
	var rows strings.Builder
	more := 0
	r.eachKey(func(l *Limit, change string, k *Key) {
		if b.Len()+rows.Len() > maxMarkdownBytes {
			more++
			return
		}
		fmt.Fprintf(&rows, "| %s | %s | %s | %s | %d | %d |\n", code(l.Path), code(l.Name), change, code(k.Key), k.Changed, k.Requests)
	})
	if rows.Len() == 0 {
		return
	}
	b.WriteString("\n<details><summary>Worst keys</summary>\n\n| rule | limit | change | key | changed requests | requests " +
		"|\n|---|---|---|---|--:|--:|\n")
	b.WriteString(rows.String())
	if more > 0 {
		fmt.Fprintf(b, "\nand %d more keys.\n", more)
	}
	b.WriteString("\n</details>\n")
}
