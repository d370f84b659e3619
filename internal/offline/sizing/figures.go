package sizing

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"sync"
)

// figures.json is taken from bench/results.jsonl by TestFiguresMatchTheBenchmark, with
// -update.
//
//go:embed figures.json
var figuresJSON []byte

// Figures returns the measurements of [Report].
var Figures = sync.OnceValue(func() *Measured {
	m := new(Measured)
	if err := json.Unmarshal(figuresJSON, m); err != nil {
		panic(fmt.Sprintf("figures.json: %v", err)) // impossible: a test reads it
	}
	return m
})

// Measured holds figures of the benchmark.
type Measured struct {
	Machines []string `json:"machines"` // with the date and the rows
	// Memory is the size of a key of 40 bytes in Weir's memory, and Redis the size on Redis, both
	// by algorithm. A penalty, and reservations, add the sizes under "penalty" and "reservation".
	Memory map[string]Size `json:"memory"`
	Redis  map[string]Size `json:"redis"`
	// Weir and Store are the CPU time of Weir and of Redis, by algorithm, while the counters are on
	// Redis.
	Weir     map[string]CPU `json:"cpu_weir"`
	Store    map[string]CPU `json:"cpu_redis"`
	InMemory map[string]CPU `json:"cpu_weir_memory"`
}

// A Size is the memory of a key, in bytes.
type Size struct {
	Key Range `json:"key"` // with one hit or lease
	Hit Range `json:"hit"` // for each further hit or lease
}

// of returns the size of hits that are spread over at most this number of keys.
func (s Size) of(keys, hits float64) Range {
	return s.Key.times(min(keys, hits)).plus(s.Hit.times(max(0, hits-keys)))
}

// A CPU is the CPU time of a request with one descriptor, in µs.
type CPU struct {
	Busy   Range `json:"busy"`   // with 64 requests at once
	Single Range `json:"single"` // with one request at a time
}

// A Range is the smallest and the largest of several measured or computed values.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

func (r Range) times(x float64) Range { return Range{r.Low * x, r.High * x} }

func (r Range) plus(o Range) Range { return Range{r.Low + o.Low, r.High + o.High} }

// widest returns the smallest range that contains both.
func (r Range) widest(o Range) Range {
	if r == (Range{}) {
		return o
	}
	return Range{math.Min(r.Low, o.Low), math.Max(r.High, o.High)}
}
