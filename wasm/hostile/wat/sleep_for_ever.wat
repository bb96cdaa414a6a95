;; Sleeps until the end of time, again and again.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64)
    (i64.store (i32.const 24) (i64.const 0x7ffffffffffffff0))
    (loop $l (drop (call $poll (i32.const 0) (i32.const 1024) (i32.const 1) (i32.const 2048))) (br $l))
    unreachable)
)
