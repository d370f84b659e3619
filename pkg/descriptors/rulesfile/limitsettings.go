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
// on failure and denial. Those of an overlay may have requests_per_unit, which replaces that of the
// rule.
type limitSettings struct {
	file     string
	at       *yaml.Node // the map
	settings map[string]setting
	onDeny   *descriptors.OnDeny
	faulty   bool // a key of the map is faulty, which may explain a missing or inapplicable key
}

// A setting is a key of a limit with its value as text; "" if the value is faulty.
type setting struct {
	key   *yaml.Node
	value string
}

// readLimitSettings reads the settings of a limit, or of an overlay.
func (r *reader) readLimitSettings(f fields) *limitSettings {
	s := &limitSettings{file: r.file, at: f.at, settings: map[string]setting{}, faulty: r.faulty(f)}
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
	set("on_store_error", r.readOnStoreError)
	set("on_deny", func(f field) string { s.onDeny = r.readOnDeny(f); return "" })
	return s
}

// readOnStoreError reads an on_store_error. It returns "" if the key is absent or faulty. It warns
// about the first local of a file. ParseWith drops this warning if the number of replicas is known.
func (r *reader) readOnStoreError(f field) string {
	onStoreError := r.readChoice(f, limiters.OnStoreErrorNames()...)
	if onStoreError == limiters.OnStoreErrorLocal.String() && !r.hasLocal {
		r.hasLocal = true
		r.warn(localWithoutReplicas, f.key,
			"'on_store_error: local' without a number of replicas: while Redis is down, each replica admits the whole limit",
			"set REPLICAS or REPLICAS_DNS of the server, and pass --replicas to weir check")
	}
	return onStoreError
}

// completedBy returns s completed by overlay, and the keys taken from the overlay. An object is
// taken as a whole. A nil overlay is empty.
func (s *limitSettings) completedBy(overlay *limitSettings) (merged *limitSettings, fromOverlay []string) {
	if overlay == nil {
		return s, nil
	}
	merged = &limitSettings{file: s.file, at: s.at, settings: maps.Clone(s.settings), onDeny: cmp.Or(s.onDeny, overlay.onDeny)}
	for _, key := range overlayLimitSchema.Keys {
		if s.settings[key].key != nil || overlay.settings[key].key == nil {
			continue
		}
		fromOverlay = append(fromOverlay, key)
		for name, value := range overlay.settings {
			if name == key || strings.HasPrefix(name, key+".") {
				merged.settings[name] = value
			}
		}
	}
	return merged, fromOverlay
}

// algorithm returns the name of the algorithm; "" if it is faulty.
func (s *limitSettings) algorithm() string {
	if algorithm := s.settings["algorithm"]; algorithm.key != nil {
		return algorithm.value
	}
	return limiters.DefaultAlgorithm
}

// checkApplicable finds parameters in merged that its algorithm does not have. merged is own,
// completed by the overlay that note names.
func (r *reader) checkApplicable(own, merged *limitSettings, note string) {
	algorithm := merged.algorithm()
	for _, known := range parameters {
		if merged.settings[known.Key].key == nil || known.inObject() || algorithm == "" || slices.Contains(known.algorithms, algorithm) {
			continue
		}
		r.fault(cmp.Or(own.settings[known.Key].key, own.at), fmt.Sprintf("'%s' has no meaning for the algorithm %s", known.Key, algorithm),
			"remove it, or set 'algorithm: "+strings.Join(known.algorithms, "' or 'algorithm: ")+"'"+note)
	}
}

// newLimit compiles a limit with the settings s and a rate.
func (s *limitSettings) newLimit(rate descriptors.Rate) (descriptors.RateLimit, error) {
	spec := limiters.Spec{Algorithm: s.algorithm()}
	for _, known := range parameters {
		if value := s.settings[known.Key].value; value != "" {
			if err := known.Set(&spec.Params, value); err != nil {
				return descriptors.RateLimit{}, err
			}
		}
	}
	spec.CountDenied = limiters.CountsDeniedByDefault(spec.Algorithm) && s.settings["reserve"].key == nil
	if countDenied := s.settings["count_denied"]; countDenied.key != nil {
		spec.CountDenied = countDenied.value == "true"
	}
	l, err := descriptors.NewRateLimit(spec, rate)
	l.OnStoreError, l.OnDeny = limiters.ParseOnStoreError(s.settings["on_store_error"].value), s.onDeny
	return l, err
}

// overlayNote returns a suffix for messages that names the keys taken from the overlay; "" if there
// are none.
func overlayNote(overlay *limitSettings, fromOverlay []string) string {
	if len(fromOverlay) == 0 {
		return ""
	}
	at := overlay.settings[fromOverlay[0]].key
	return fmt.Sprintf(" (the overlay sets '%s', at %s:%d:%d)",
		strings.Join(fromOverlay, "', '"), overlay.file, at.Line, at.Column)
}
