package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Envoy explains how Envoy makes the descriptors of a request from the rate_limits of a route.
type Envoy struct {
	Route      string           `json:"route" doc:"The file and line of the route, with its virtual host."`
	RateLimits []EnvoyRateLimit `json:"rate_limits" nullable:"false" doc:"One explanation for each element of rate_limits, of the route, the virtual host and the filter."`
}

// An EnvoyRateLimit explains an element of rate_limits.
type EnvoyRateLimit struct {
	Source     string   `json:"source" doc:"The file and line of the element."`
	Descriptor []Entry  `json:"descriptor" nullable:"false" doc:"The entries that Envoy sends. Empty if it sends no descriptor."`
	Skipped    bool     `json:"skipped" doc:"Whether Envoy sends no descriptor for the element."`
	Unknown    bool     `json:"unknown,omitempty" doc:"Whether the file and the request do not determine the descriptor. It is then not explained."`
	AtEnd      bool     `json:"at_end,omitempty" doc:"Whether Envoy sends the descriptor when the stream ends (apply_on_stream_done)."`
	Reason     string   `json:"reason" doc:"Why Envoy sends no descriptor, or omits an entry. Empty if every action added an entry."`
	Ignored    []string `json:"ignored" nullable:"false" doc:"The fields that Envoy ignores in this element, each with the reason."`
}

// ForEnvoy explains the descriptors that Envoy sends before the request and at its end. Either
// request may have none.
func ForEnvoy(o Options, rules *descriptors.Rules, envoy *Envoy, before, atEnd *decide.Request) *Explanation {
	explanation, _ := newExplanation(rules, before.Domain)
	explanation.Envoy = envoy
	for _, request := range []*decide.Request{before, atEnd} {
		if len(request.Descriptors) == 0 {
			continue
		}
		part := ForRequest(o, rules, request)
		explanation.Error = cmp.Or(explanation.Error, part.Error)
		explanation.Descriptors = append(explanation.Descriptors, part.Descriptors...)
	}
	return explanation
}

// covered reports whether Envoy sends a descriptor, and each one is known. For nil it returns true.
func (e *Envoy) covered() bool {
	if e == nil {
		return true
	}
	return slices.ContainsFunc(e.RateLimits, func(r EnvoyRateLimit) bool { return !r.Skipped }) &&
		!slices.ContainsFunc(e.RateLimits, func(r EnvoyRateLimit) bool { return r.Unknown })
}

// envoy writes the section of Envoy.
func (p *painter) envoy(e *Envoy) {
	p.WriteString("\n")
	p.wrap(bold, "", "  ", "Envoy: route "+e.Route)
	sent := false
	for i := range e.RateLimits {
		r := &e.RateLimits[i]
		branch, below := "├─ ", "│  "
		if i == len(e.RateLimits)-1 {
			branch, below = "└─ ", "   "
		}
		switch {
		case r.Unknown:
			p.wrap(red, branch, below, r.Source+": unknown")
		case r.Skipped:
			p.wrap(yellow, branch, below, r.Source+": no descriptor")
		default:
			sent = true
			when := ""
			if r.AtEnd {
				when = ", at the end of the stream"
			}
			entries := make([]string, len(r.Descriptor))
			for j, entry := range r.Descriptor {
				entries[j] = shown(entry.String())
			}
			p.wrap(green, branch, below, fmt.Sprintf("%s: descriptor %s%s", r.Source, strings.Join(entries, ", "), when))
		}
		if r.Reason != "" {
			p.wrap(plain, below, below, r.Reason)
		}
		for _, field := range r.Ignored {
			p.wrap(plain, below, below, "Envoy ignores "+field)
		}
	}
	if !sent {
		p.wrap(red, "", "  ", "Envoy sends no descriptor, so no limit applies: it does not ask Weir")
	}
}
