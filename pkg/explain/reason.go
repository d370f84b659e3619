package explain

import (
	"fmt"
	"strings"

	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// stepReason returns how the entry of s selects a node, or why it selects none, as a clause. If it
// selects none, brief is the reason in at most four words.
func stepReason(s *descriptors.Step) (reason, brief string) {
	reason, brief = selectionReason(s)
	if h := s.Hides; h != nil {
		hidden, rule := located(h.Node, h.Source), located(h.Rule.Name, h.Rule.Source())
		reason += "; this hides " + hidden
		if rule != hidden {
			reason += ", which would have led to " + rule
		}
	}
	return reason, brief
}

func selectionReason(s *descriptors.Step) (reason, brief string) {
	switch s.Result {
	case descriptors.MatchedExact:
		return "key and value are equal", ""
	case descriptors.MatchedValues:
		return "the value is in the list", ""
	case descriptors.MatchedPrefix:
		return "the address is in " + s.Prefix.String(), ""
	case descriptors.MatchedWildcard:
		return "the wildcard fits", ""
	case descriptors.MatchedKeyOnly:
		return "the key matches any value", ""
	case descriptors.NoChild:
		if s.Above == "" {
			return "the domain has no rules", "no such key"
		}
		return s.Above + " has no rules below it", "no rule below"
	case descriptors.NoKey:
		level, brief := "at the top level", "no such key"
		if s.Above != "" {
			level, brief = "below "+s.Above, "no rule below"
		}
		return fmt.Sprintf("no rule %s matches the key %s: %s", level, short(s.Entry.Key),
			alternatives(s, s.Entry.Key, "the keys are", "the key is")), brief
	case descriptors.NoValue:
		return "the value differs: " + otherValues(s), "the value differs"
	case descriptors.NoWildcard:
		return "no wildcard fits: " + otherValues(s), "no wildcard fits"
	case descriptors.NoPrefix:
		return "the address is in no prefix: " + otherValues(s), "in no prefix"
	case descriptors.NoAddress:
		return "the value is not an address: " + otherValues(s), "not an address"
	}
	return "", ""
}

// otherValues returns the values that the rules have for the key of s.
func otherValues(s *descriptors.Step) string {
	key := short(s.Entry.Key)
	return alternatives(s, s.Entry.Value, "the values of "+key+" are", "the value of "+key+" is")
}

// whyNoLimit returns the reason why a descriptor that ends at the node of s has no limit.
func whyNoLimit(s *descriptors.Step) string {
	if len(s.Alternatives) == 0 {
		return "the rule has neither a limit nor rules below it, which exempts the request"
	}
	return "the rule has no limit, and the descriptor has no further entry: " +
		alternatives(s, "", "the keys below are", "the key below is")
}

const (
	maxAlternatives = 5
	maxNearest      = 10_000 // bounds the comparisons with a misspelled text
)

// alternatives returns the first alternatives of s, after plural or singular, such as "the keys
// are" or "the key is". It adds the alternative that misspelled probably means.
func alternatives(s *descriptors.Step, misspelled, plural, singular string) string {
	all := s.Alternatives
	texts := make([]string, min(len(all), maxAlternatives))
	for i, text := range all[:len(texts)] {
		texts[i] = short(text)
		if text == "" {
			texts[i] = "no value"
		}
	}
	text := plural + " " + strings.Join(texts, ", ")
	if len(texts) == 1 {
		text = singular + " " + texts[0]
	}
	if more := len(all) - len(texts); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if nearest := spelling.Nearest(misspelled, all[:min(len(all), maxNearest)]); nearest != "" && len(texts) > 1 {
		text += "; did you mean " + short(nearest) + "?"
	}
	return text
}

func short(text string) string { return descriptors.TruncateWithHash(text, 64) }
