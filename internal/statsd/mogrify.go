package statsd

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Mogrifier converts parts of a metric's name to dogstatsd tags.
type Mogrifier struct {
	pattern *regexp.Regexp
	name    string
	tags    [][2]string
}

// Mogrifiers returns the mogrifiers in list, the comma-separated USE_DOG_STATSD_MOGRIFIERS, from
// the variables DOG_STATSD_MOGRIFIER_<NAME>_PATTERN, _NAME and _TAGS. The first one whose pattern
// matches rewrites a name. The error joins the errors of all mogrifiers.
func Mogrifiers(list string, getenv func(string) string) ([]Mogrifier, error) {
	var made []Mogrifier
	var errs []error
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		m, err := newMogrifier(name, getenv)
		made, errs = append(made, m), append(errs, err)
	}
	return made, errors.Join(errs...)
}

func newMogrifier(name string, getenv func(string) string) (m Mogrifier, err error) {
	variable := "DOG_STATSD_MOGRIFIER_" + strings.ToUpper(name)
	pattern := getenv(variable + "_PATTERN")
	if pattern == "" {
		return m, fmt.Errorf("%s_PATTERN: is empty: want a regular expression", variable)
	}
	m.pattern, err = regexp.Compile(pattern)
	if err != nil {
		return m, fmt.Errorf("%s_PATTERN: %w: want a regular expression of Go", variable, err)
	}
	m.name = getenv(variable + "_NAME")
	if m.name == "" {
		return m, fmt.Errorf("%s_NAME: is empty: write the name of the metric, such as requests or $1", variable)
	}
	templates := []string{m.name}
	if tags := getenv(variable + "_TAGS"); strings.TrimSpace(tags) != "" {
		for pair := range strings.SplitSeq(tags, ",") {
			key, value, found := strings.Cut(pair, ":")
			if !found || key == "" || value == "" || strings.Contains(value, ":") {
				return m, fmt.Errorf("%s_TAGS: cannot read %q: want key:value", variable, pair)
			}
			m.tags = append(m.tags, [2]string{key, value})
			templates = append(templates, value)
		}
	}
	for _, template := range templates {
		for _, group := range groups.FindAllString(template, -1) {
			if n, err := strconv.Atoi(group[1:]); err != nil || n > m.pattern.NumSubexp() {
				return m, fmt.Errorf("%s_NAME or %s_TAGS: %s names no group: %s_PATTERN has %d", variable, variable, group, variable,
					m.pattern.NumSubexp())
			}
		}
	}
	return m, nil
}

var groups = regexp.MustCompile(`\$\d+`)

// mogrify applies the first mogrifier that matches name.
func mogrify(mogrifiers []Mogrifier, name string) (string, []string) {
	for i := range mogrifiers {
		m := &mogrifiers[i]
		found := m.pattern.FindStringSubmatch(name)
		if found == nil {
			continue
		}
		expand := func(template string) string {
			return groups.ReplaceAllStringFunc(template, func(group string) string {
				n, _ := strconv.Atoi(group[1:])
				return found[n]
			})
		}
		var tags []string
		for _, t := range m.tags {
			// A comma in a value would start another tag.
			tags = append(tags, t[0]+":"+strings.ReplaceAll(expand(t[1]), ",", "_"))
		}
		return expand(m.name), tags
	}
	return name, nil
}
