module github.com/fusebox-dev/fusebox/wasm/peers

go 1.26.0

require (
	github.com/extism/go-sdk v1.7.1
	github.com/fusebox-dev/fusebox v0.0.0
	github.com/tetratelabs/wazero v1.12.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/dylibso/observe-sdk/go v0.0.0-20240819160327-2d926c5d788a // indirect
	github.com/gobwas/glob v1.1.0 // indirect
	github.com/ianlancetaylor/demangle v0.0.0-20240805132620-81f5be970eca // indirect
	github.com/tetratelabs/wabin v0.0.0-20230304001439-f6f874872834 // indirect
	go.opentelemetry.io/proto/otlp v1.11.1 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/fusebox-dev/fusebox => ../..
