// Package sources brings rules from where they are kept to who parses them. A source hands on files as they are, an
// error when it cannot read them, and nothing when nothing has changed:
//
//	source := &sources.File{Path: "/etc/weir/rules"}
//	files, err := source.Read()                 // at start
//	err = source.Watch(ctx, func(files []descriptors.File, err error) {
//		// from now on, after each change
//	})
package sources
