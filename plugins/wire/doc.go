// Package wire is the protobuf service between fusebox and its extensions, made
// from extension.proto.
package wire

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative extension.proto
