;; Answers with invalid UTF-8.
(module
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "\7b\22\6f\75\74\63\6f\6d\65\22\3a\22\46\41\49\4c\45\44\22\2c\22\63\6c\61\73\73\22\3a\22\62\75\64\67\65\74\22\2c\22\72\65\61\73\6f\6e\22\3a\22\ff\fe\22\7d")
  (func (export "fb_classify") (param i32 i32) (result i64) (i64.const 274877906995))
)
