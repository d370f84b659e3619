package rulesfile

import (
	"regexp"
	"strings"
)

// regexes match texts that are probably regular expressions rather than values of requests. They do not match "index.*", because
// '*' is a wildcard.
var regexes = []*regexp.Regexp{
	regexp.MustCompile(`^\^|^/.*\$$|[*+)\]]\$$`),   // anchors
	regexp.MustCompile(`(?:^|/)\.\*|\.\+`),         // any characters: .* /.* .+
	regexp.MustCompile(`\\[dDwWsSbB./]`),           // classes and escaped characters: \d \.
	regexp.MustCompile(`\[[^\]]+\](?:[+*?]|\{\d)`), // [a-z]+ [0-9]{3}
	regexp.MustCompile(`\([^()]*\|[^()]*\)|\(\?`),  // (a|b) (?i)
}

func isRegex(value string) bool {
	for _, r := range regexes {
		if r.MatchString(value) {
			return true
		}
	}
	return false
}

// regexRemedy returns the advice for a value that looks like a regular expression.
func regexRemedy(value string) string {
	pattern, anchored := strings.CutPrefix(value, "^")
	pattern, ends := strings.CutSuffix(pattern, "$")
	pattern = strings.NewReplacer(".*", "*", ".+", "*", `\.`, ".", `\/`, "/").Replace(pattern)
	if strings.ContainsAny(pattern, `\[](){}|+?^$"`) || pattern == "" {
		return "write '*' for any characters, or a rule for each value"
	}
	if anchored && !ends && !strings.HasSuffix(pattern, "*") {
		pattern += "*"
	}
	return `write value: "` + short(pattern) + `"`
}
