package rulesfile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// limitSettings holds the settings of a limit except its rate: algorithm, parameters, and behavior
// on failure and denial.
type limitSettings struct {
	file     string
	at       *yaml.Node // the map
	settings map[string]setting
	onDeny   *descriptors.OnDeny
	requests *requests // set in an overlay; replaces the rule's requests_per_unit
}

type requests struct {
	key   *yaml.Node
	value int64
}

// A setting is a key of a limit with its value as text; "" if the value is faulty.
type setting struct {
	key   *yaml.Node
	value string
}

// readLimitSettings reads the settings of a limit, or of an overlay.
func (r *reader) readLimitSettings(f fields) *limitSettings {
	s := &limitSettings{file: r.file, at: f.at, settings: map[string]setting{}}
	set := func(name string, read func(field) string) {
		if f.has(name) {
			s.settings[name] = setting{f.key(name), read(f.get(name))}
		}
	}
	set("algorithm", func(f field) string { return r.readChoice(f, limiters.Algorithms()...) })
	for _, known := range parameters {
		switch {
		case known.Type != limiters.Object:
			set(known.Key, func(f field) string { return r.readParameter(f, known) })
		case f.has(known.Key):
			r.readObjectParameter(f.get(known.Key), known, s.settings)
		}
	}
	set("count_denied", func(f field) string { return strconv.FormatBool(r.readBool(f)) })
	set("on_store_error", func(f field) string { return r.readChoice(f, limiters.OnErrorNames()...) })
	set("on_deny", func(f field) string { s.onDeny = r.readOnDeny(f); return "" })
	return s
}

// readOnError returns the value of on_store_error, or limiters.OnErrorUnset if it is absent or faulty.
func (r *reader) readOnError(f field) limiters.OnError {
	return limiters.ParseOnError(r.readChoice(f, limiters.OnErrorNames()...))
}

// completedBy returns s completed by overlay, and the keys taken from the overlay. An object is
// taken as a whole. A nil overlay is empty.
func (s *limitSettings) completedBy(overlay *limitSettings) (merged *limitSettings, fromOverlay []string) {
	if overlay == nil {
		return s, nil
	}
	merged = &limitSettings{file: s.file, at: s.at, settings: maps.Clone(s.settings), onDeny: cmp.Or(s.onDeny, overlay.onDeny)}
	for _, key := range settingKeys {
		if _, found := s.settings[key]; found {
			continue
		}
		if _, found := overlay.settings[key]; !found {
			continue
		}
		fromOverlay = append(fromOverlay, key)
		for name, value := range overlay.settings {
			if name == key || strings.HasPrefix(name, key+".") {
				merged.settings[name] = value
			}
		}
	}
	if overlay.requests != nil {
		merged.requests, fromOverlay = overlay.requests, append(fromOverlay, "requests_per_unit")
	}
	return merged, fromOverlay
}

// algorithm returns the name of the algorithm; "" if it is faulty.
func (s *limitSettings) algorithm() string {
	if algorithm, found := s.settings["algorithm"]; found {
		return algorithm.value
	}
	return limiters.DefaultAlgorithm
}

// checkApplicable finds parameters in merged that its algorithm does not have. merged is own,
// completed by the overlay that note names.
func (r *reader) checkApplicable(own, merged *limitSettings, note string) {
	algorithm := merged.algorithm()
	for _, known := range parameters {
		if _, found := merged.settings[known.Key]; !found || known.inObject() || algorithm == "" || slices.Contains(known.algorithms, algorithm) {
			continue
		}
		r.fault(cmp.Or(own.settings[known.Key].key, own.at), fmt.Sprintf("'%s' has no meaning for the algorithm %s", known.Key, algorithm),
			"remove it, or set 'algorithm: "+strings.Join(known.algorithms, "' or 'algorithm: ")+"'"+note)
	}
}

// spec returns the Spec of the limit without maximum and window.
func (s *limitSettings) spec() (limiters.Spec, error) {
	spec := limiters.Spec{Algorithm: s.algorithm()}
	for _, known := range parameters {
		if value := s.settings[known.Key].value; value != "" {
			if err := known.Set(&spec.Params, value); err != nil {
				return spec, err
			}
		}
	}
	if countDenied, found := s.settings["count_denied"]; found {
		spec.CountDenied = countDenied.value == "true"
	} else {
		_, reserves := s.settings["reserve"]
		spec.CountDenied = limiters.CountsDeniedByDefault(spec.Algorithm) && !reserves
	}
	return spec, nil
}

// overlayNote returns a suffix for messages that names the keys taken from the overlay; "" if there
// are none.
func overlayNote(overlay *limitSettings, fromOverlay []string) string {
	if len(fromOverlay) == 0 {
		return ""
	}
	at := overlay.settings[fromOverlay[0]].key
	if at == nil {
		at = overlay.requests.key
	}
	return fmt.Sprintf(" (the overlay sets '%s', at %s:%d:%d)",
		strings.Join(fromOverlay, "', '"), overlay.file, at.Line, at.Column)
}
