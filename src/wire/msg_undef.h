/* Ends a pass over proto/messages.def. No include guard. */
#undef GW_RECORD
#undef GW_MESSAGE
#undef GW_END
#undef GW_U8
#undef GW_U16
#undef GW_U32
#undef GW_U64
#undef GW_I64
#undef GW_FLAG
#undef GW_FIXED
#undef GW_BYTES
#undef GW_TEXT
#undef GW_LIST
