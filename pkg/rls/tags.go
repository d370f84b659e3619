package rls

// The wire types of protowire, which declares them as typed constants.
const (
	varintType = 0
	bytesType  = 2
)

// Tags: field number and wire type. The numbers are below 16, so each tag takes one byte. A known
// number with another wire type is an unknown field.
const (
	// Fields of a request.
	tagDomain      = 1<<3 | bytesType
	tagDescriptors = 2<<3 | bytesType
	tagHitsAddend  = 3<<3 | varintType

	tagEntries          = 1<<3 | bytesType
	tagLimit            = 2<<3 | bytesType
	tagDescriptorAddend = 3<<3 | bytesType
	tagIsNegativeHits   = 4<<3 | varintType

	tagKey   = 1<<3 | bytesType
	tagValue = 2<<3 | bytesType

	tagOverrideRequests   = 1<<3 | varintType
	tagOverrideUnit       = 2<<3 | varintType
	tagOverrideMultiplier = 3<<3 | bytesType

	// Fields of a response.
	tagOverallCode          = 1<<3 | varintType
	tagStatuses             = 2<<3 | bytesType
	tagResponseHeadersToAdd = 3<<3 | bytesType
	tagRawBody              = 5<<3 | bytesType
	tagDynamicMetadata      = 6<<3 | bytesType

	tagHeaderKey   = 1<<3 | bytesType
	tagHeaderValue = 2<<3 | bytesType

	tagCode               = 1<<3 | varintType
	tagCurrentLimit       = 2<<3 | bytesType
	tagLimitRemaining     = 3<<3 | varintType
	tagDurationUntilReset = 4<<3 | bytesType

	tagRequestsPerUnit = 1<<3 | varintType
	tagUnit            = 2<<3 | varintType
	tagName            = 3<<3 | bytesType
	tagUnitMultiplier  = 4<<3 | bytesType

	// Fields of google.protobuf.UInt32Value and UInt64Value, Duration, Struct and Value.
	tagWrapped     = 1<<3 | varintType
	tagSeconds     = 1<<3 | varintType
	tagFields      = 1<<3 | bytesType
	tagFieldKey    = 1<<3 | bytesType
	tagFieldValue  = 2<<3 | bytesType
	tagStringValue = 3<<3 | bytesType
	tagStructValue = 5<<3 | bytesType
)
