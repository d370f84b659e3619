package descriptors

import (
	"fmt"
	"strings"
)

var stepResultNames = [...]string{
	MatchedValue: "value", MatchedList: "list", MatchedPrefix: "prefix", MatchedWildcard: "wildcard", MatchedKey: "key",
	NoChild: "no_child", NoKey: "no_key", NoValue: "no_value", NoWildcard: "no_wildcard", NoPrefix: "no_prefix", NoAddress: "no_address",
}

// String returns the result in snake_case.
func (r StepResult) String() string { return stepResultNames[r] }

// Brief returns the reason in at most four words, for output with several steps on a line.
func (s *Step) Brief() string {
	switch s.Result {
	case NoChild, NoKey:
		if s.above == "" {
			return "no such key"
		}
		return "no child"
	case NoValue:
		return "the value differs"
	case NoWildcard:
		return "no wildcard fits"
	case NoPrefix:
		return "in no prefix"
	case NoAddress:
		return "not an address"
	}
	return ""
}

// Reason returns a clause that explains how the entry selects a node, or why it selects none.
func (s *Step) Reason() string {
	reason := s.reason()
	if h := s.Hides; h != nil {
		reason += fmt.Sprintf("; this hides %s, which would have led to %s", located(h.Node, h.Source),
			located(h.Rule.Name, h.Rule.Source()))
	}
	return reason
}

func (s *Step) reason() string {
	switch s.Result {
	case MatchedValue:
		return "key and value are equal"
	case MatchedList:
		return "the value is in the list"
	case MatchedPrefix:
		return "the address is in " + s.in.String()
	case MatchedWildcard:
		return "the wildcard fits"
	case MatchedKey:
		return "the key matches any value"
	case NoChild:
		if s.above == "" {
			return "the domain has no descriptors"
		}
		return "no child: " + s.above + " has no descriptors below it"
	case NoKey:
		return fmt.Sprintf("no descriptor %shas the key %s: %s", s.below(), short(s.Entry.Key), s.known.text("the keys are", "the key is"))
	}
	what := map[StepResult]string{
		NoValue: "the value differs", NoWildcard: "no wildcard fits", NoPrefix: "the address is in no prefix",
		NoAddress: "the value is not an address",
	}[s.Result]
	return fmt.Sprintf("%s: %s", what, s.known.text("the values of "+short(s.Entry.Key)+" are", "the value of "+short(s.Entry.Key)+" is"))
}

// below returns "below PARENT ", or "" at the top level.
func (s *Step) below() string {
	if s.above == "" {
		return ""
	}
	return "below " + s.above + " "
}

// Needs returns the entry that a request lacks if it ends at the node of s, which has no rule.
func (s *Step) Needs() string {
	if len(s.known.texts) == 0 {
		return "the descriptor has neither a limit nor descriptors below it, which exempts the request"
	}
	return "the descriptor has no limit, and the request has no further entry: " + s.known.text("the keys below are", "the key below is")
}

// text returns the texts after a verb phrase, and the suggested spelling. plural and singular are the phrases.
func (k known) text(plural, singular string) string {
	shown := make([]string, len(k.texts))
	for i, text := range k.texts {
		shown[i] = short(text)
		if text == "" {
			shown[i] = "no value"
		}
	}
	text := plural + " " + strings.Join(shown, ", ")
	if len(k.texts) == 1 {
		text = singular + " " + shown[0]
	}
	if k.more > 0 {
		text += fmt.Sprintf(" and %d more", k.more)
	}
	if k.nearest != "" && len(k.texts) > 1 {
		text += "; did you mean " + short(k.nearest) + "?"
	}
	return text
}

// located returns "name (source)", or the name if the source is unknown.
func located(name, source string) string {
	if source == "" {
		return name
	}
	return name + " (" + source + ")"
}

func short(text string) string { return TruncateWithHash(text, 64) }
