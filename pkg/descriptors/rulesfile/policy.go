package rulesfile

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/limiters"
)

const (
	defaultAlgorithm = "fixed_window"
	funnelAlgorithm  = "funnel"
)

// meanings are the keys that only one algorithm knows.
var meanings = []struct{ key, algorithm string }{{"window_start", defaultAlgorithm}, {"capacity", funnelAlgorithm}}

// A policy is what a limit says beside its rate. What it does not say has no place in says.
type policy struct {
	file        string
	at          *yaml.Node            // the map it stands in
	says        map[string]*yaml.Node // its keys
	algorithm   string                // "" if what it says is no algorithm
	start       string
	capacity    uint32
	countDenied bool
	onError     limiters.OnError
}

func (r *reader) policy(n *yaml.Node, f fields) *policy {
	p := &policy{file: r.file, at: n, says: map[string]*yaml.Node{}}
	for _, k := range policyKeys {
		if node := f[k.name].key; node != nil {
			p.says[k.name] = node
		}
	}
	p.algorithm, _ = r.word(f["algorithm"], limiters.Algorithms()...)
	p.start, _ = r.word(f["window_start"], windowStarts...)
	p.capacity = r.number(f["capacity"], 1, 0)
	p.countDenied = r.boolean(f["count_denied"], false)
	p.onError = r.onError(f["on_store_error"])
	return p
}

// onError is what an on_store_error says, nothing if it is absent.
func (r *reader) onError(f field) limiters.OnError {
	if f.key == nil {
		return limiters.OnErrorUnsaid
	}
	name, _ := r.word(f, limiters.OnErrors()...)
	return limiters.OnErrorOf(name)
}

// over is p where it says something, else under, and which keys are under's. A nil under says nothing.
func (p *policy) over(under *policy) (sum policy, borrowed []string) {
	sum = *p
	if under == nil {
		return sum, nil
	}
	sum.says = map[string]*yaml.Node{}
	for _, k := range policyKeys {
		if node := p.says[k.name]; node != nil {
			sum.says[k.name] = node
		} else if node := under.says[k.name]; node != nil {
			sum.says[k.name] = node
			borrowed = append(borrowed, k.name)
			sum.take(k.name, under)
		}
	}
	return sum, borrowed
}

func (p *policy) take(key string, from *policy) {
	switch key {
	case "algorithm":
		p.algorithm = from.algorithm
	case "window_start":
		p.start = from.start
	case "capacity":
		p.capacity = from.capacity
	case "count_denied":
		p.countDenied = from.countDenied
	case "on_store_error":
		p.onError = from.onError
	}
}

// strays are what is said and has no meaning for the algorithm, each as a fault would have it.
func (p *policy) strays() map[string]string {
	strays := map[string]string{}
	for _, m := range meanings {
		if p.says[m.key] != nil && p.algorithm != "" && p.algorithm != m.algorithm {
			strays[m.key] = fmt.Sprintf("%s has no meaning for the algorithm %s: remove it, or set algorithm: %s",
				m.key, p.algorithm, m.algorithm)
		}
	}
	return strays
}

func (p *policy) spec() limiters.Spec {
	s := limiters.Spec{
		Algorithm:   p.algorithm,
		Capacity:    int64(p.capacity),
		FirstHit:    p.start == windowStarts[1],
		CountDenied: p.countDenied,
	}
	if p.says["count_denied"] == nil {
		s.CountDenied = s.Algorithm == defaultAlgorithm
	}
	return s
}

// blame tells which part of a limit is the overlay's, "" if none.
func blame(overlay *policy, borrowed []string) string {
	if len(borrowed) == 0 {
		return ""
	}
	at := overlay.says[borrowed[0]]
	return fmt.Sprintf(" (the overlay sets %s, at %s:%d:%d)",
		strings.Join(borrowed, ", "), overlay.file, at.Line, at.Column)
}
