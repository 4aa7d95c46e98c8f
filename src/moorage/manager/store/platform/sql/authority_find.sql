SELECT certificate, key, next_certificate, next_key, retiring_certificate, rotated_at
FROM link_authority
