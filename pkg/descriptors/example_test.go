package descriptors_test

import (
	"fmt"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// Rules without a file: 5 replies a minute for each user.
func ExampleBuilder() {
	limit, err := descriptors.NewRateLimit(limiters.Spec{Algorithm: "sliding_log"}, descriptors.Rate{Requests: 5, Unit: descriptors.Minute, Multiplier: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	b := descriptors.NewBuilder()
	user := b.Domain("ugc").Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: "user_id"}})
	reply := user.Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: "action", Value: "reply"}})
	reply.SetRule(descriptors.Rule{Limits: []descriptors.RateLimit{limit}})
	rules := b.Build()

	entries := []descriptors.Entry{{Key: "user_id", Value: "alice"}, {Key: "action", Value: "reply"}}
	rule := rules.Match("ugc", entries)
	fmt.Println(rule.Name, rule.Limits[0].RequestsPerUnit, "per", rule.Limits[0].Unit)
	fmt.Println(descriptors.Key("ugc", rule, entries))
	// Output:
	// user_id.action=reply 5 per minute
	// 3:ugc|7:user_id*5:alice|6:action=5:reply
}
