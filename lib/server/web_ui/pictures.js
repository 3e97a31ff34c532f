// Images of a question: attached, dropped or pasted, shown above the input box until it is sent.
// They are kept as data: URLs of PNG or JPEG, which the server reads.
'use strict';
let sees = false;   // whether the model does
let pictures = [];  // of the box
const pictureDrafts = new Map();  // conversation -> those of its box
const kMostPictures = 16, kLargestPicture = 8 << 20, kLongestSide = 4096;

const isPicture = value =>
  typeof value === 'string' && /^data:image\/(png|jpeg);base64,[A-Za-z0-9+/]+=*$/.test(value);
const urlOf = file => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => fail(reader.error);
  reader.readAsDataURL(file);
});
// A large one, or of another format that this browser knows, is drawn anew.
async function pictureOf(file) {
  if (file.size <= kLargestPicture && ['image/png', 'image/jpeg'].includes(file.type)) {
    return urlOf(file);
  }
  const drawn = await createImageBitmap(file);
  const scale = Math.min(1, kLongestSide / Math.max(drawn.width, drawn.height));
  const canvas = element('canvas', {width: Math.max(1, Math.round(drawn.width * scale)),
                                    height: Math.max(1, Math.round(drawn.height * scale))});
  canvas.getContext('2d').drawImage(drawn, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL('image/jpeg', 0.92);
}
async function attachPicture(file) {
  if (!sees) return notice('file', `${file.name}: this model reads text only`);
  if (pictures.length >= kMostPictures) {
    return notice('file', `A question has at most ${counted(kMostPictures, 'image')}`);
  }
  const chat = open;
  try {
    const url = await pictureOf(file);
    if (!isPicture(url)) throw new Error('it is empty');
    if (chat === open) pictures.push(url);
  } catch (error) {
    notice('file', `${file.name} is no image that this browser reads: ${error.message}`);
  }
  keepDraft();
  showPictures();
}
const pictureNode = (src, alt) => element('img', {src, alt, className: 'picture'});
function showPictures() {
  $('pictures').hidden = pictures.length === 0;
  $('pictures').replaceChildren(...pictures.map((url, at) => element(
    'span', {}, pictureNode(url, `Image ${at + 1}`), button('✕', () => {
      pictures.splice(at, 1);
      keepDraft();
      showPictures();
      $('input').focus();
    }, {className: 'quiet', ariaLabel: `Remove image ${at + 1}`}))));
}

// A message's content as the server takes it.
const contentOf = ({content, images}) => !images?.length ? content : [
  ...images.map(url => ({type: 'image_url', image_url: {url}})),
  ...(content ? [{type: 'text', text: content}] : [])
];
const partsOf = content => Array.isArray(content) ? content : [{type: 'text', text: content}];
const joinedContent = (one, other) => Array.isArray(one) || Array.isArray(other)
  ? [...partsOf(one), ...partsOf(other)] : one + '\n\n' + other;
