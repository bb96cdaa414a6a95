;; Sleeps until its clock has gone round, and reads it.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\22outcome\22:\22FAILED\22,\22class\22:\22budget\22}")
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64)
    (local $i i32)
    (loop $l
      (i64.store (i32.const 24) (i64.const 0x7ffffffffffffffe))
      (drop (call $poll (i32.const 0) (i32.const 1024) (i32.const 1) (i32.const 2048)))
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 9))))
    (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 131064)))
    (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 131065)))
    (i64.const 274877906981))
)
