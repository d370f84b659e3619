package admin

import (
	"github.com/weir-rls/weir/internal/observe"
	"github.com/weir-rls/weir/pkg/explain"
)

type (
	// Entry is a key and a value.
	Entry = explain.Entry
	// Top is a list of the heaviest keys.
	Top = observe.Top
	// TopKey is a key with its count.
	TopKey = observe.TopKey
	// Decision is the outcome of a descriptor.
	Decision = observe.Decision
	// Filter selects decisions.
	Filter = observe.Filter
	// Subscription receives decisions.
	Subscription = observe.Subscription
)
