package settings

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-rls/weir/internal/spelling"
)

// prefixes are prefixes that only settings have.
var prefixes = []string{
	"CONFIG_GRPC_XDS_", "XDS_CLIENT_", "GRPC_CLIENT_TLS_", "GRPC_MAX_CONNECTION_", "GRPC_SERVER_TLS_", "REDIS_PERSECOND_",
	"REDIS_TLS_", "REDIS_SENTINEL_", "STORE_MAX_", "DENY_CACHE_", "MEMORY_MAX_", "MEMORY_SNAPSHOT_", "TRACING_EXPORTER_", "ADMIN_TLS_",
}

// ofService matches the variables that Kubernetes sets in each pod for a Service, for example one
// named redis-sentinel.
var ofService = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT(_\d+_[A-Z]+(_PROTO|_PORT|_ADDR)?)?$`)

// minCheckedBytes is the minimum length of a setting whose misspellings are reported. Shorter
// names, such as PORT and HOST, resemble variables of other programs.
const minCheckedBytes = 6

// misspelled returns the variables of environ that are probably misspelled settings: one typing
// mistake away from a setting, or with a prefix of settings.
func misspelled(environ map[string]string) (found []Ineffective) {
	known := variables()
	long := slices.DeleteFunc(slices.Clone(known), func(v string) bool { return len(v) < minCheckedBytes })
	for name, value := range environ {
		if value == "" || slices.Contains(known, name) {
			continue
		}
		begins := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		switch nearest := spelling.OneMistake(name, long); {
		case ofService.MatchString(name):
		case nearest != "":
			found = append(found, Ineffective{Setting: name, Reason: fmt.Sprintf("unknown setting: did you mean %s?", nearest)})
		case begins:
			found = append(found, Ineffective{Setting: name, Reason: "unknown setting: weir serve --help=all lists all settings"})
		}
	}
	slices.SortFunc(found, func(a, b Ineffective) int { return strings.Compare(a.Setting, b.Setting) })
	return found
}

// variables returns the variables of all settings, and those of IgnoredVariables.
func variables() []string {
	names := variablesOf(reflect.TypeFor[Serve](), "")
	for _, v := range IgnoredVariables {
		names = append(names, v.Variable)
	}
	return names
}

// variablesOf returns the variables of a struct. kong puts the prefix of an embedded struct before
// those of its fields.
func variablesOf(settings reflect.Type, prefix string) (names []string) {
	for i := range settings.NumField() {
		f := settings.Field(i)
		if _, embedded := f.Tag.Lookup("embed"); embedded {
			names = append(names, variablesOf(f.Type, prefix+f.Tag.Get("envprefix"))...)
		} else if variable, isSetting := f.Tag.Lookup("env"); isSetting {
			names = append(names, prefix+variable)
		}
	}
	return names
}
