;; Calls a function of another type through the table.
(module
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\"outcome\":\"FAILED\",\"class\":\"budget\"}")
  (type $t (func (param i64) (result i64)))
  (table 2 funcref)
  (elem (i32.const 0) $v)
  (func $v)
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64)
    (call_indirect (type $t) (i64.const 1) (i32.const 0)))
)
