package descriptors

// A ruleTable stores rules contiguously, so that finding a rule by its number takes one memory
// access.
type ruleTable struct {
	chunks [][]Rule
	n      uint32
}

const rulesPerChunk = 512

// add stores a copy of r and sets its number, from 1.
func (t *ruleTable) add(r *Rule) *Rule {
	if t.n%rulesPerChunk == 0 {
		t.chunks = append(t.chunks, make([]Rule, rulesPerChunk))
	}
	stored := &t.chunks[t.n/rulesPerChunk][t.n%rulesPerChunk]
	t.n++
	*stored = *r
	stored.number = t.n
	return stored
}

// get returns the rule with a number; nil if there is none.
func (t *ruleTable) get(number uint32) *Rule {
	if number == 0 || number > t.n {
		return nil
	}
	return &t.chunks[(number-1)/rulesPerChunk][(number-1)%rulesPerChunk]
}
