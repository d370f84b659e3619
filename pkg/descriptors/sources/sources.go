// Package sources reads rules from files and folders and reports when they change. It does not
// parse them.
//
//	source := sources.NewWatcher("/etc/weir/rules")
//	files, err := source.Read() // at start
//	err = source.Watch(ctx, func(files []rulesfile.File, err error) {
//		// called after each change
//	})
package sources
