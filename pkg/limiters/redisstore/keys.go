package redisstore

import (
	"strconv"

	"github.com/weir-rls/weir/pkg/limiters"
)

// format is the version of what keys hold. Another one reads nothing of this one's.
const format = "w1"

// naming says where states are.
type naming struct {
	prefix string
	tag    func(key string) string
}

// key is where a hit's state is. The key's own text is the hash tag of a cluster, so that limits of one key are on one
// node; braces in it change nothing, for the first is ours and the text, which decides the tag, is the same for all. A
// tag of the caller's stands before the text, and its length before that, so that no two texts run together.
func (n naming) key(h *limiters.Hit) string {
	tag := ""
	if n.tag != nil {
		tag = n.tag(h.Key)
	}
	if tag == "" {
		return n.prefix + format + "{" + h.Key + "}" + h.Limit.ID()
	}
	return n.prefix + format + strconv.Itoa(len(tag)) + "{" + tag + "}" + h.Key + "}" + h.Limit.ID()
}

func (n naming) keys(hits []limiters.Hit) []string {
	keys := make([]string, len(hits))
	for i := range hits {
		keys[i] = n.key(&hits[i])
	}
	return keys
}
