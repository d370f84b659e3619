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

// keys returns the keys of all hits in order, in one piece of memory.
func (n naming) keys(groups []limiters.Group) []string {
	var room keyRoom
	return n.keysIn(&room, groups)
}

// A keyRoom is memory to make keys in, again and again.
type keyRoom struct {
	text []byte
	ends []int
	keys []string
}

// keysIn returns the keys of all hits in order. The slice is valid until the room is used again, the texts for ever.
func (n naming) keysIn(r *keyRoom, groups []limiters.Group) []string {
	r.text, r.ends, r.keys = r.text[:0], r.ends[:0], r.keys[:0]
	for _, g := range groups {
		for i := range g {
			r.text = n.append(r.text, &g[i])
			r.ends = append(r.ends, len(r.text))
		}
	}
	all, from := string(r.text), 0
	for _, end := range r.ends {
		r.keys = append(r.keys, all[from:end])
		from = end
	}
	return r.keys
}
