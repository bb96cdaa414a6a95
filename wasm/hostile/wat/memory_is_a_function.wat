;; Exports a function called memory.
(module
  (memory 2)
  (func (export "memory"))
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\"outcome\":\"FAILED\",\"class\":\"budget\"}")
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64)
    (i64.const 274877906981))
)
