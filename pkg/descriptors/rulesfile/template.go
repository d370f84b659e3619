package rulesfile

import (
	"regexp"
	"strings"
)

var (
	envoyFormat  = regexp.MustCompile(`^%[A-Z_]+(?:\(.*\))?(?::\d+)?%$`) // %REQ(x-user-id)%
	unfilled     = regexp.MustCompile(`\$\{[^}]*\}|\{\{.*\}\}`)          // ${USER} {{ .Values.user }}
	pathVariable = regexp.MustCompile(`/(?:\{[^/{}]*\}|:[A-Za-z_]\w*)`)  // /user/{id} /user/:id
)

// templateRemedy returns advice for a value that looks like a template; "" for other values.
func templateRemedy(key, value string) string {
	switch {
	case envoyFormat.MatchString(value):
		return "leave out the value: each value that Envoy sends then has a counter of its own"
	case unfilled.MatchString(value):
		return "write the value itself: fill in the template before Weir reads the file"
	// Under other keys, /user/{id} may be the name of a route.
	case strings.TrimPrefix(strings.ToLower(key), ":") == "path" && pathVariable.MatchString(value):
		return `write value: "` + short(pathVariable.ReplaceAllString(value, "/*")) + `"`
	}
	return ""
}
