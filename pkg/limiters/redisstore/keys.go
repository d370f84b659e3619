package redisstore

import (
	"strconv"

	"github.com/weir-rls/weir/pkg/limiters"
)

// format is the version of what keys hold. Another one reads nothing of this one's.
const format = "w2"

// naming says where states are.
type naming struct {
	prefix string
	tag    func(key string) string
	hider  *hider // nil: texts are shown
}

// append appends the key of a hit's state to text. The hit's own key is the hash tag of a cluster, so that limits of one
// key are on one node; braces in it change nothing, for the first is ours and the text, which decides the tag, is the same
// for all. A tag of the caller's stands before the text, and its length before that, so that no two texts run together.
// A hider's letters stand in the places of both.
func (n naming) append(text []byte, h *limiters.Hit) []byte {
	tag := ""
	if n.tag != nil {
		tag = n.tag(h.Key)
	}
	text = append(text, n.prefix...)
	text = append(text, format...)
	switch {
	case n.hider != nil:
		text = n.hider.append(text, tag, h.Key)
	case tag != "":
		text = strconv.AppendInt(text, int64(len(tag)), 10)
		text = append(text, '{')
		text = append(text, tag...)
		text = append(text, '}')
		text = append(text, h.Key...)
	default:
		text = append(text, '{')
		text = append(text, h.Key...)
	}
	text = append(text, '}')
	return append(text, h.Limit.ID()...)
}

func (n naming) key(h *limiters.Hit) string { return string(n.append(nil, h)) }

// keys are those of hits, all in one piece of memory.
func (n naming) keys(hits []limiters.Hit) []string {
	keys, ends := make([]string, len(hits)), make([]int, len(hits))
	text := make([]byte, 0, 96*len(hits))
	for i := range hits {
		text = n.append(text, &hits[i])
		ends[i] = len(text)
	}
	all, from := string(text), 0
	for i, end := range ends {
		keys[i] = all[from:end]
		from = end
	}
	return keys
}
