package simulate

import (
	"github.com/weir-rls/weir/internal/keysample"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/recording"
)

// A keySum is a sum over keys. It also bounds the sum of the squares of the keys, from which the
// interval of an estimate follows. Keys with equal low bits of their hashes count as one, so the
// bound is never too low, and the memory is constant.
type keySum struct {
	sum    float64
	byHash [1 << 16]float64
}

func (s *keySum) add(hash uint64, x float64) {
	s.sum += x
	s.byHash[hash%uint64(len(s.byHash))] += x
}

func (s *keySum) squares() (sum float64) {
	for _, x := range s.byHash {
		sum += x * x
	}
	return sum
}

// sampleSums holds the sums from which a [Sample] follows. The keys of a request share it in equal
// parts: of n keys, each adds 1/n, as the sample has each key with the same probability.
type sampleSums struct {
	requests keySum
	// denied has the denied requests, shared by the keys that deny them. The sample does not show
	// whether the keys that it left out deny them too. deniedLeast is the sum if they do.
	denied      keySum
	deniedLeast float64
}

// add adds a request of a recording, which left out some of its descriptors. result has no
// decisions if the request failed.
func (s *sampleSums) add(line *recording.Line, result *decide.Result) {
	recorded := len(line.Request.Descriptors)
	all := float64(recorded + line.LeftOut)
	if result == nil { // without keys, all such requests count as those of one
		s.requests.add(0, float64(recorded)/all)
		return
	}
	denials := 0
	for i := range result.Decisions {
		if result.Decisions[i].Outcome == decide.Denied {
			denials++
		}
	}
	for i := range result.Decisions {
		d := &result.Decisions[i]
		hash := keysample.Hash(d.Plan)
		s.requests.add(hash, 1/all)
		if result.Denied && d.Outcome == decide.Denied {
			s.denied.add(hash, 1/float64(denials))
			s.deniedLeast += 1 / float64(denials+line.LeftOut)
		}
	}
}

// estimates returns the estimates for all traffic from a recording with a share of all keys.
func (s *sampleSums) estimates(share float64, r *Result) *Sample {
	requests := estimateSum(s.requests.sum, s.requests.squares(), share)
	denied := estimateSum(s.denied.sum, s.denied.squares(), share)
	denied.Low, _ = recording.EstimateSum(s.deniedLeast, s.denied.squares(), share)
	return &Sample{Share: share, Requests: requests.atLeast(r.Requests), Denied: denied.atLeast(r.Denied)}
}

// atLeast returns e for a number of which the recording has n already.
func (e Estimate) atLeast(n int64) Estimate {
	return Estimate{Value: max(e.Value, float64(n)), Low: max(e.Low, float64(n)), High: max(e.High, float64(n))}
}

// estimateKeys estimates the number of all keys from the number in a sample by hash of key.
func estimateKeys(sampled int64, share float64) *Estimate {
	low, high := recording.EstimateKeys(sampled, share)
	return &Estimate{Value: float64(sampled) / share, Low: float64(low), High: float64(high)}
}

// estimateSum estimates a sum over all keys from the sum over a sample, and the sum of the squares
// of the addends.
func estimateSum(sum, squares, share float64) Estimate {
	low, high := recording.EstimateSum(sum, squares, share)
	return Estimate{Value: sum / min(share, 1), Low: low, High: high}
}
